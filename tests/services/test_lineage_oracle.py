"""The platform's column lineage beside that of OpenLineage's Spark listener: the same plans, of all assets, in one run.

Only where the listener can be had: a machine without a network that never fetched it skips this, and says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import dagster as dg
import pytest
from lineage_listener import Explained, Heard, differences, heard, listener_jar, listening
from platform_world import Lakehouse, Platform
from test_lineage_everywhere import runs

from de_assets.dashboards.definitions import defs as dashboards
from de_assets.definitions import defs
from de_resources.lineage.recorded import Field, Lineages, RecordedLineage
from de_resources.local import LocalServices
from de_resources.local.ivy import IvyFailed

pytestmark = [pytest.mark.services, pytest.mark.pattern("fine_grained_tracker")]

OUTSIDE = {
    ("kafka", "visits"): "sources/visits_topic",
    ("kafka", "users"): "sources/users_topic",
    ("postgres", "blog.legacy_visits"): "sources/legacy_visits_table",
}


@pytest.fixture
def platform_with_listener(new_services: Callable[[], LocalServices], tmp_path: Path) -> Iterator[Platform]:
    """Services of its own, whose engine has the listener; `tmp_path / "events"` is what it says."""
    services = new_services()
    try:
        jar = listener_jar(services.settings)
    except IvyFailed:
        pytest.skip("OpenLineage's listener is not here, and cannot be fetched without a network")
    with listening(jar, tmp_path / "events"):
        platform = Platform(services)
        platform.up()
    platform.feed()
    yield platform
    services.down()


def dataset_of(lake: Path, settings_home: Path) -> Callable[[str, str], str]:
    """The dataset behind OpenLineage's names: by the folder of its table, or as the systems outside are called."""

    def name(namespace: str, said: str) -> str:
        for root in (lake, settings_home / "staging"):
            if said.startswith(f"{root}/"):
                return "/".join(Path(said).relative_to(root).parts[:2])
        if said.startswith(f"{settings_home / 'landing'}/"):
            folder = Path(said).relative_to(settings_home / "landing").parts[0]
            return {"devices": "sources/devices_drop", "visits": "sources/landed_visits"}[folder]
        return OUTSIDE[namespace.partition(":")[0], said]

    return name


def test_the_listener_says_the_same_of_every_asset_or_the_table_says_why_not(
    platform_with_listener: Platform, tmp_path: Path
) -> None:
    lakehouse = Lakehouse(platform_with_listener.services, tmp_path)
    lakehouse.environment["DE_CALENDAR"] = "2024-10-10T00/2024-10-11T00"
    lakehouse.run(*runs()).succeeded()
    with dg.DagsterInstance.from_config(str(lakehouse.instance)) as instance:
        known = Lineages.of(instance, (defs, dashboards)).datasets
    made = {
        key.to_user_string()
        for each in (defs, dashboards)
        for key in each.resolve_asset_graph().materializable_asset_keys
    }
    named = dataset_of(lakehouse.root, platform_with_listener.services.settings.home)
    told, table = heard(tmp_path / "events", named), Explained.read()
    assert made - told.keys() == table.silent, "of which datasets the listener says nothing"
    found = [
        each
        for name in sorted(made & told.keys())
        if (recorded := known[name].lineage) is not None
        for each in differences(name, told[name], recorded)
    ]
    left = [rest for each in found if (rest := table.unexplained(each)).listener or rest.platform]
    assert (left, table.unneeded(found)) == ([], set())
    agreed = [name for name in made & told.keys() if name not in {each.dataset for each in found}]
    assert len(agreed) >= 5, "of these the two say the same, column by column"


class TestTheTable:
    """A table that explains everything would be worth nothing."""

    def test_what_it_does_not_name_is_left(self) -> None:
        table = Explained({"a/b": frozenset({"x/y.c"})}, {}, frozenset())
        listener = Heard({"k": {("x/y", "c"), ("x/y", "d")}, "same": {("x/y", "e")}})
        recorded = _recorded(k={("x/y", "f")}, same={("x/y", "e")})
        (found,) = differences("a/b", listener, recorded)
        left = table.unexplained(found)
        assert (left.column, left.listener, left.platform) == ("k", {("x/y", "d")}, {("x/y", "f")})
        assert table.unneeded([found]) == set()
        assert table.unneeded([left]) == {"listener: a/b x/y.c"}


def _recorded(**columns: set[Field]) -> RecordedLineage:
    return RecordedLineage({name: frozenset(fields) for name, fields in columns.items()})
