"""What carries each pattern, asked of the loaded definitions: never of a list that somebody has to keep in step.

Assets and jobs say it by a tag `pattern/<name>`, checks by a metadata key of that form (the framework has no tags on
checks), sensors and schedules by either.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING

from de_assets.catalogue.patterns import PREFIX, pattern_named

if TYPE_CHECKING:
    # The command line needs the catalogue's names at every start, and this only to look at the graph.
    import dagster as dg

LOCATIONS = ("de_assets.definitions", "de_assets.dashboards.definitions")


@dataclass(frozen=True, order=True)
class Carrier:
    """One definition that carries a pattern: `kind` is asset, check, job, sensor or schedule."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


def load_locations(modules: Iterable[str] = LOCATIONS) -> list[dg.Definitions]:
    """The definitions of every code location that exists here. Takes seconds: it imports the whole graph."""
    return [importlib.import_module(module).defs for module in modules if _exists(module)]


def carriers(defs: dg.Definitions) -> dict[str, list[Carrier]]:
    """Carriers by pattern name, sorted; patterns without one are left out.

    Raises:
        UnknownPattern: a tag or metadata key names a pattern that the catalogue does not have.
    """
    found: dict[str, set[Carrier]] = {}
    for carrier, labels in _labelled(defs):
        for label in labels:
            if label.startswith(PREFIX):
                pattern = pattern_named(label.removeprefix(PREFIX), f"tag `{label}` of the {carrier}")
                found.setdefault(pattern.name, set()).add(carrier)
    return {name: sorted(each) for name, each in found.items()}


def _labelled(defs: dg.Definitions) -> Iterator[tuple[Carrier, Iterable[str]]]:
    """All definitions with the keys of their tags and, where those may carry, of their metadata."""
    repository = defs.get_repository_def()
    for spec in defs.resolve_all_asset_specs():
        yield Carrier("asset", spec.key.to_user_string()), spec.tags
    graph = defs.resolve_asset_graph()
    for key in graph.asset_check_keys:
        yield Carrier("check", f"{key.asset_key.to_user_string()}:{key.name}"), graph.get_check_spec(key).metadata or ()
    for job in repository.get_all_jobs():
        yield Carrier("job", job.name), job.tags
    for sensor in repository.sensor_defs:
        yield Carrier("sensor", sensor.name), [*sensor.tags, *sensor.metadata]
    for schedule in repository.schedule_defs:
        yield Carrier("schedule", schedule.name), [*schedule.tags, *schedule.metadata]


def _exists(module: str) -> bool:
    """Whether the module can be found; its package may be missing as well."""
    package = module.rpartition(".")[0]
    return find_spec(package) is not None and find_spec(module) is not None
