"""Unaligned Fan-In: the day is out at its deadline with what is there, says so, and is redone when the rest arrives.

On real tables and with Dagster's own instance; the deadline is passed in.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from de_assets.automation.triggers.fan_in import fan_in_sensor
from de_assets.gold import daily_report as report
from de_assets.partitions import daily, hourly
from de_assets.ranges import RANGE_END, RANGE_START, range_tags
from de_assets.resources import resources
from de_checks.keys import KEY_IS_UNIQUE
from de_checks.per_key import latest_materializations
from de_resources.fan_in import MISSING, inputs_of
from de_resources.settings import Settings
from de_resources.spark import SparkEngine

pytestmark = pytest.mark.pattern("unaligned_fan_in")

DEADLINE = timedelta(hours=3)
FIRST, SECOND, THIRD = daily.get_partition_keys()
YEARS_LATER = datetime(2040, 1, 1, tzinfo=UTC)
"""When nothing is being written any more."""


@dg.asset(
    key=report.VISITS,
    partitions_def=hourly,
    backfill_policy=dg.BackfillPolicy.single_run(),
    io_manager_key="io_manager",
    metadata={"partition_expr": "event_hour"},
)
def visits() -> None:
    """Written by delta-rs (`Platform.wrote`): nobody asks how."""


def visits_of(keys: Sequence[str]) -> list[tuple[datetime, str, str]]:
    """In every hour one visit more than in the hour before, by as many users; none of it at midnight."""
    moments = [hourly.time_window_for_partition_key(key).start for key in keys]
    return [(at, f"user {n}", f"page {n % 3}") for at in moments for n in range(at.hour)]


@dg.asset_check(asset=visits, partitions_def=hourly, blocking=True)
def visits_are_good(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
    return dg.AssetCheckResult(passed="bad" not in context.run.tags)


class Platform:
    """The report over visits of the test, an instance, and a clock that the test sets."""

    def __init__(self, settings: Settings, engine: SparkEngine, instance: dg.DagsterInstance) -> None:
        self.lake, self.engine, self.instance, self.now = settings.lake_root, engine, instance, YEARS_LATER
        self.sensor = fan_in_sensor(
            "due", report.KEY, report.VISITS, deadline=DEADLINE, now=lambda: self.now, description="of the test"
        )
        self.defs = dg.Definitions(
            assets=[visits, report.daily_report],
            # Whether a day has one report is asked in `de run` (`ui/conftest.py`), and by nobody here.
            asset_checks=[visits_are_good, *(each for each in report.checks if each.check_key.name != KEY_IS_UNIQUE)],
            sensors=[self.sensor],
            resources=resources(settings, engine),
        )

    def tick(self, now: datetime = YEARS_LATER) -> list[dg.RunRequest]:
        """What is requested at this moment; `said` is what the tick tells where it is nothing."""
        self.now, self.said = now, ""
        with dg.build_sensor_context(self.instance, definitions=self.defs) as context:
            answer = self.sensor(context)
        if isinstance(answer, dg.SkipReason):
            self.said = answer.skip_message or ""
            return []
        assert isinstance(answer, dg.SensorResult)
        return list(answer.run_requests or [])

    def run(self, asset: dg.AssetKey, first: str, last: str = "", **tags: str) -> bool:
        """One run over the partitions, with the asset's checks."""
        job = self.defs.resolve_implicit_global_asset_job_def().get_subset(asset_selection={asset})
        tags = {**tags, **range_tags(first, last)} if last else {**tags, "dagster/partition": first}
        return bool(job.execute_in_process(instance=self.instance, tags=tags, raise_on_error=False).success)

    def landed(self, *hours: str) -> None:
        """Hours without a visit, as if a run had written them."""
        for hour in hours:
            self.instance.report_runless_asset_event(dg.AssetMaterialization(report.VISITS, partition=hour))

    def lands_without(self, hour: str, what: dict[str, str]) -> None:
        """An hour that says itself that it was made without something."""
        told = {MISSING: dg.MetadataValue.json(what)}
        self.instance.report_runless_asset_event(dg.AssetMaterialization(report.VISITS, partition=hour, metadata=told))

    def wrote(self, *hours: str) -> None:
        """These hours with their visits."""
        types = {"event_hour": pa.timestamp("us", tz="UTC"), "user_id": pa.string(), "page": pa.string()}
        columns = zip(types.items(), zip(*visits_of(hours), strict=True), strict=True)
        table = pa.table({name: pa.array(values, type_) for (name, type_), values in columns})
        write_deltalake(f"{self.lake}/silver/visits", table, partition_by=["event_hour"], mode="append")
        self.landed(*hours)

    def refuses(self, hour: str) -> None:
        """The gate finds the hour bad as it is now."""
        gate = dg.AssetCheckKey(report.VISITS, "visits_are_good")
        job = self.defs.resolve_implicit_global_asset_job_def()
        judging = job.get_subset(asset_selection=set(), asset_check_selection={gate})
        tags = {"bad": "", "dagster/partition": hour}
        assert not judging.execute_in_process(instance=self.instance, tags=tags, raise_on_error=False).success

    def answer(self, request: dg.RunRequest) -> None:
        assert request.partition_key
        assert self.run(report.KEY, request.partition_key)

    def row(self, day: str) -> dict[str, Any]:
        rows = DeltaTable(f"{self.lake}/gold/daily_report").to_pyarrow_table().to_pylist()
        (row,) = (row for row in rows if f"{row['report_date']}" == day)
        return dict(row)

    def told(self, day: str) -> dict[str, Any]:
        return dict(latest_materializations(self.instance, report.KEY, [day])[day].metadata)

    def verdict(self, day: str) -> dg.AssetCheckEvaluation:
        records = self.instance.event_log_storage.get_asset_check_execution_history(
            dg.AssetCheckKey(report.KEY, "inputs_are_complete"), limit=1
        )
        assert records[0].evaluation is not None
        assert records[0].evaluation.partition == day
        return records[0].evaluation


@pytest.fixture
def platform(engine: SparkEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Platform]:
    monkeypatch.setenv("DE_HOME", str(tmp_path))
    with dg.DagsterInstance.ephemeral() as instance:
        yield Platform(Settings.from_environment(), engine, instance)


def hours_of(day: str) -> list[str]:
    return [f"{day}-{hour:02}:00" for hour in range(24)]


def at_deadline(day: str) -> datetime:
    return daily.time_window_for_partition_key(day).end + DEADLINE


def days(requests: list[dg.RunRequest]) -> list[tuple[str, str]]:
    """The first and the last day of each request."""
    return [
        (request.partition_key, request.partition_key)
        if request.partition_key
        else (request.tags[RANGE_START], request.tags[RANGE_END])
        for request in requests
    ]


@pytest.mark.red_check("inputs_are_complete")
def test_the_day_is_out_at_its_deadline_and_redone_when_the_rest_arrives(platform: Platform) -> None:
    four, five, seven = (f"{FIRST}-0{hour}:00" for hour in (4, 5, 7))
    platform.wrote(*hours_of(FIRST)[:4], four, seven)
    platform.refuses(seven)
    platform.landed(f"{FIRST}-06:00", *hours_of(FIRST)[8:-1])
    platform.lands_without(hours_of(FIRST)[-1], {"a file": "never came"})
    assert platform.tick(at_deadline(FIRST) - timedelta(seconds=1)) == []
    assert platform.said == (
        f"{FIRST} waits for {five} (never computed), {seven} (refused by visits_are_good) until {SECOND} 03:00 UTC"
    )

    (request,) = platform.tick(at_deadline(FIRST))
    assert request.tags["fan_in/why"] == f"without {five}, {seven}"
    assert [each.run_key for each in platform.tick(at_deadline(FIRST))] == [request.run_key], "by which it is run once"
    platform.answer(request)
    row = platform.row(FIRST)
    assert (row["visits"], row["users"], row["hours_there"], row["basis"]) == (1 + 2 + 3 + 4, 4, 22, "some hours")
    assert (row["completeness"], row["is_approximate"]) == (22 / 24, True)
    assert row["missing_hours"] == f"{five}, {seven}"
    told = platform.told(FIRST)
    assert (told["completeness"], told["is_approximate"]) == (22 / 24, True)
    assert told["approximate_inputs"] == {hours_of(FIRST)[-1]: {"a file": "never came"}}, "what is in it is incomplete"
    assert told["missing_inputs"] == {five: "never computed", seven: "refused by visits_are_good"}
    verdict = platform.verdict(FIRST)
    assert (verdict.passed, verdict.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert f"92% of its inputs. Missing: {five} (never computed), {seven} (refused" in str(verdict.description)
    later = at_deadline(FIRST) + timedelta(hours=5)
    assert platform.tick(later) == [], "nothing came since"

    platform.wrote(five, f"{FIRST}-06:00")
    platform.landed(seven, hours_of(FIRST)[-1])
    (again,) = platform.tick(later)
    assert again.run_key != request.run_key
    platform.answer(again)
    row = platform.row(FIRST)
    assert (row["visits"], row["completeness"], row["is_approximate"], row["missing_hours"]) == (28, 1.0, False, "")
    assert platform.verdict(FIRST).passed
    assert platform.tick(later) == []


def test_with_nothing_at_all_an_earlier_day_stands_in_by_name(platform: Platform, engine: SparkEngine) -> None:
    platform.wrote(f"{FIRST}-03:00")
    platform.landed(*(hour for hour in hours_of(FIRST) if not hour.endswith("03:00")))
    assert days(platform.tick(at_deadline(SECOND) - timedelta(seconds=1))) == [(FIRST, FIRST)]
    assert days(platform.tick(at_deadline(SECOND))) == [(FIRST, SECOND)]
    assert platform.run(report.KEY, FIRST, THIRD)
    borrowed = platform.row(THIRD)
    assert (borrowed["visits"], f"{borrowed['figures_of']}", borrowed["basis"]) == (3, FIRST, "earlier day")
    assert (borrowed["completeness"], borrowed["is_approximate"], borrowed["hours_there"]) == (0.0, True, 0)
    assert platform.told(SECOND)["completeness"] == 0.0
    assert platform.told(FIRST)["completeness"] == 1.0, "each day of a range tells its own"
    assert platform.run(report.KEY, THIRD)
    assert platform.row(THIRD) == borrowed, "also from the table a copy is not copied"

    platform.wrote(*hours_of(SECOND)[:2])
    platform.landed(*hours_of(SECOND)[2:])
    (request,) = platform.tick()
    platform.answer(request)
    row = platform.row(SECOND)
    assert (row["visits"], f"{row['figures_of']}", row["is_approximate"]) == (1, SECOND, False)

    table = f"delta.`{platform.lake}/gold/daily_report`"
    for lie in ("is_approximate = false", "completeness = null"):
        with pytest.raises(Exception, match="CHECK constraint contract_"):
            engine.spark_session.sql(f"UPDATE {table} SET {lie} WHERE report_date = DATE '{THIRD}'").collect()


class TestRequests:
    """When which day is asked for. No engine."""

    def made(self, platform: Platform, day: str) -> None:
        """A report of what is there now, as a run records it."""
        graph = platform.defs.resolve_asset_graph()
        inputs = inputs_of(platform.instance, graph, report.KEY, report.VISITS, hours_of(day))
        told = dg.AssetMaterialization(report.KEY, partition=day, metadata=inputs.metadata)
        platform.instance.report_runless_asset_event(told)

    def test_before_the_first_hour_that_ever_came_nothing_is_due(self, platform: Platform) -> None:
        assert platform.tick() == []
        platform.landed(f"{SECOND}-05:00")
        assert days(platform.tick()) == [(SECOND, THIRD)]

    def test_a_complete_day_is_requested_before_the_deadline_and_once(self, platform: Platform) -> None:
        soon = daily.time_window_for_partition_key(FIRST).end + timedelta(minutes=1)
        platform.landed(*hours_of(FIRST)[:-1])
        assert platform.tick(soon) == []
        platform.landed(hours_of(FIRST)[-1])
        (request,) = platform.tick(soon)
        assert (request.partition_key, request.tags["fan_in/why"]) == (FIRST, "all inputs are there")
        self.made(platform, FIRST)
        assert platform.tick(soon) == []

    def test_an_hour_that_comes_later_asks_for_its_day_again_and_once(self, platform: Platform) -> None:
        later = at_deadline(FIRST) + timedelta(hours=5)
        platform.landed(*hours_of(FIRST)[:22])
        self.made(platform, FIRST)
        assert platform.tick(later) == []
        for hour in hours_of(FIRST)[22:]:
            platform.landed(hour)
            (request,) = platform.tick(later)
            assert request.tags["fan_in/why"].endswith("1 again")
            assert [each.run_key for each in platform.tick(later)] == [request.run_key]
            self.made(platform, FIRST)
            assert platform.tick(later) == []
        platform.landed(hours_of(FIRST)[3])
        assert days(platform.tick(later)) == [(FIRST, FIRST)], "also when an hour was computed again"

    def test_who_catches_up_asks_for_days_when_the_hours_have_settled(self, platform: Platform) -> None:
        platform.landed(*hours_of(FIRST), *hours_of(SECOND)[:5])
        (visible,) = platform.instance.get_asset_records([report.VISITS])
        newest = visible.asset_entry.last_materialization_record
        assert newest is not None
        written = datetime.fromtimestamp(newest.timestamp, UTC)
        assert days(platform.tick(written)) == [(FIRST, FIRST)], "what is complete need not wait"
        (request,) = platform.tick(written + timedelta(minutes=11))
        assert days([request]) == [(FIRST, THIRD)]

    def test_a_run_of_the_hours_that_is_under_way_is_awaited_and_not_at_the_deadline(self, platform: Platform) -> None:
        platform.landed(*hours_of(FIRST)[:-1])
        job = platform.defs.resolve_implicit_global_asset_job_def().get_subset(asset_selection={report.VISITS})
        run = platform.instance.create_run_for_job(job, tags={"dagster/partition": hours_of(FIRST)[-1]})
        assert days(platform.tick(at_deadline(FIRST))) == [(FIRST, FIRST)]
        assert platform.tick() == []
        assert "settled" in platform.said
        platform.instance.report_run_canceled(run)
        assert days(platform.tick()) == [(FIRST, THIRD)]

    def test_a_day_that_is_being_computed_is_not_asked_for(self, platform: Platform) -> None:
        platform.landed(*hours_of(FIRST))
        job = platform.defs.resolve_implicit_global_asset_job_def().get_subset(asset_selection={report.KEY})
        platform.instance.create_run_for_job(job, tags={"dagster/partition": FIRST})
        assert platform.tick(at_deadline(FIRST)) == []

    def test_a_day_that_failed_spoils_no_other(self, platform: Platform) -> None:
        for day in (FIRST, SECOND, THIRD):
            platform.landed(*hours_of(day))
        assert days(platform.tick()) == [(FIRST, THIRD)]
        job = platform.defs.resolve_implicit_global_asset_job_def().get_subset(asset_selection={report.KEY})
        run = platform.instance.create_run_for_job(job, tags={"dagster/partition": SECOND})
        platform.instance.report_run_failed(run)
        requests = platform.tick()
        assert days(requests) == [(FIRST, FIRST), (SECOND, SECOND), (THIRD, THIRD)]
        assert [each.run_key for each in platform.tick()] == [each.run_key for each in requests], "each is run once"
