"""A producer renames an optional field: every row keeps its contract, and a check is red at once and names both."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path

import dagster as dg
import pytest
from checks_world import jobs_run, red, verdicts
from instances import silent_instance

from de_assets.bronze.visits import checks
from de_assets.definitions import defs
from de_assets.partitions import CALENDAR, hourly
from de_assets.sources.landing import hour_folder, incoming, publish
from de_checks import baselines
from de_checks.schema_drift import ACCEPT_TAG
from de_resources.settings import Settings
from de_resources.spark import SparkEngine

pytestmark = pytest.mark.pattern("online_observer")

CHECK = "schema_has_not_drifted"
HISTORY = 2
"""How many hours are looked back at here, of which the renamed ones are more: otherwise 28."""
HOURS = [CALENDAR.start + timedelta(hours=n) for n in range(HISTORY + 6)]
KEYS = [hourly.get_partition_key(hour) for hour in HOURS]
GOOD, RENAMED, QUIET, LATER = KEYS[:2], KEYS[2:-2], KEYS[-2], KEYS[-1]
MANY, SOME, FEW = 200, 60, 5


def line(hour: datetime, number: int, referral: str) -> bytes:
    """A visit; three of five came from somewhere, and one of a hundred has logged in."""
    context: dict[str, object] = {"user": {"ip": "192.0.2.1", **({"login": "ann"} if number % 100 == 0 else {})}}
    if number % 5 < 3:
        context[referral] = "https://example.org"
    visit = {"visit_id": f"v{hour:%d%H}-{number}", "event_time": hour.isoformat(), "user_id": "u", "page": "home"}
    return json.dumps(
        {**visit, "context": context, **({"ann@example.org": 1} if referral == "referrer" else {})}
    ).encode()


class Platform:
    """A landing zone, a lake and an instance of its own."""

    def __init__(self, settings: Settings, engine: SparkEngine, instance: dg.DagsterInstance) -> None:
        from de_assets.resources import resources

        self.settings, self.instance = settings, instance
        assets = [a for a in defs.assets or [] if dg.AssetKey(["bronze", "visits"]) in getattr(a, "keys", ())]
        judged = [c for c in checks if any(spec.name in (CHECK, "rows_meet_contract") for spec in c.check_specs)]
        self.job = dg.Definitions(
            assets=assets, asset_checks=judged, resources=resources(settings, engine)
        ).resolve_implicit_global_asset_job_def()

    def land(self, records: Mapping[datetime, tuple[int, str]]) -> None:
        """Land these hours: how many records, and under which name they say where a visitor came from."""
        for hour, (count, referral) in records.items():
            with incoming(self.settings.landing) as prepared:
                (prepared / "one.json").write_bytes(b"\n".join(line(hour, n, referral) for n in range(count)))
                publish(hour_folder(self.settings.landing, hour), {"one.json": prepared / "one.json"})

    def run(self, first: str, last: str, *, only_check: bool = False, **tags: str) -> dg.ExecuteInProcessResult:
        """Load and check these hours in one run, or check them again."""
        graph = self.job.asset_layer.asset_graph
        selected = set() if only_check else set(graph.executable_asset_keys)
        job = self.job.get_subset(asset_selection=selected, asset_check_selection=graph.asset_check_keys)
        ends = {"dagster/asset_partition_range_start": first, "dagster/asset_partition_range_end": last}
        return job.execute_in_process(
            instance=self.instance,
            partition_key=first if first == last else None,
            tags={**(ends if first != last else {}), **tags},
        )


@pytest.fixture(scope="module")
def platform(home: Path, engine: SparkEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    assert engine.spark_session is not None
    with pytest.MonkeyPatch.context() as patch, silent_instance() as instance:
        patch.setenv("DE_HOME", str(tmp_path_factory.mktemp("home")))
        patch.setitem(baselines._LOOK_BACK, "last", HISTORY)
        it = Platform(Settings.from_environment(), engine, instance)
        it.land({hour: (MANY, "referral") for hour in HOURS[:2]})
        it.land({hour: (MANY if n == 0 else SOME, "referrer") for n, hour in enumerate(HOURS[2:-2])})
        it.land({HOURS[-2]: (FEW, "referrer"), HOURS[-1]: (MANY, "referrer")})
        yield it


@pytest.fixture(scope="module")
def loaded(platform: Platform) -> dg.ExecuteInProcessResult:
    """All hours, loaded by one run."""
    return platform.run(KEYS[0], LATER)


def test_a_renamed_field_is_red_in_every_hour_and_both_names_are_told(loaded: dg.ExecuteInProcessResult) -> None:
    assert loaded.success
    assert red(loaded, "rows_meet_contract") == [], "null is allowed"
    # More hours than anybody looks back: what nobody decided about does not become the measure with time.
    assert red(loaded, CHECK) == [*RENAMED, LATER]
    verdict = verdicts(loaded, CHECK)[RENAMED[0]]
    told = verdict.description or ""
    assert "`referral` is null in all 200 rows, where at least 60.0% had it before" in told
    fields = f"Gone since {GOOD[-1]}: `context.referral`. New: `context.referrer` and 1 more. Was it renamed?"
    assert told.endswith(fields), "a name that may be a value is not told"
    assert (verdicts(loaded, CHECK)[RENAMED[-1]].description or "").endswith(fields), "of every hour"
    assert verdict.metadata["vanished"].value == ["referral"], "one of a hundred may be missing by chance"
    assert (verdict.severity, verdict.blocking) == (dg.AssetCheckSeverity.ERROR, False)


def test_an_hour_with_few_records_is_not_judged(loaded: dg.ExecuteInProcessResult) -> None:
    verdict = verdicts(loaded, CHECK)[QUIET]
    assert verdict.passed
    assert verdict.description == "5 rows are too few to judge by."


@pytest.mark.usefixtures("loaded")
def test_a_rerun_judges_the_same_and_looking_costs_no_job(platform: Platform, engine: SparkEngine) -> None:
    again = platform.run(RENAMED[0], RENAMED[0])
    assert red(again, CHECK) == [RENAMED[0]]
    before = jobs_run(engine.spark_session)
    assert red(platform.run(RENAMED[0], RENAMED[0], only_check=True), CHECK) == [RENAMED[0]]
    assert jobs_run(engine.spark_session) == before


def test_what_a_person_accepted_is_the_measure_from_then_on(
    platform: Platform, loaded: dg.ExecuteInProcessResult
) -> None:
    assert LATER in red(loaded, CHECK)
    newest = RENAMED[-1]
    accepted = platform.run(newest, newest, only_check=True, **{ACCEPT_TAG: "they renamed it on purpose"})
    assert "they renamed it on purpose" in (verdicts(accepted, CHECK)[newest].description or "")
    assert red(platform.run(LATER, LATER, only_check=True), CHECK) == []


@pytest.mark.red_check("schema_has_not_drifted")
@pytest.mark.usefixtures("loaded")
def test_an_hour_that_was_mended_is_good(platform: Platform) -> None:
    assert red(platform.run(RENAMED[1], RENAMED[1], only_check=True), CHECK) == [RENAMED[1]]
    platform.land({HOURS[3]: (SOME, "referral")})
    assert red(platform.run(RENAMED[1], RENAMED[1]), CHECK) == []
