"""Frames kept by week through the IO manager, in the graph and in the jobs that a person starts."""

import time
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any

import dagster as dg
import pytest
from pyspark.sql import DataFrame

from de_assets.automation.maintenance.weeks import closed_before, week_jobs
from de_assets.contracts.serving import WeeklyVisits
from de_assets.dataset import dataset
from de_assets.partitions import hourly
from de_assets.serving.weekly_visits import weekly_visits
from de_resources.iso_week import NotAWeek, Week
from de_resources.postgres import PostgresDatabase
from de_resources.postgres.weekly import NotWeekly, WeekFrozen, WeeklyTables
from de_resources.spark import SparkEngine

pytestmark = [pytest.mark.services, pytest.mark.pattern("fast_metadata_cleaner")]

THREE_WEEKS = dg.WeeklyPartitionsDefinition("2022-12-26", day_offset=1, end_date="2023-01-16")
NEW_YEAR, AFTER = "2022-12-26", "2023-01-02"
_COLUMNS = (
    "visit_id string, event_time timestamp, user_id string, page string, referral string, device_name string, "
    "country string, is_bot boolean"
)


@pytest.fixture
def sources(nothing_served: None) -> dict[str, list[tuple[Any, ...]]]:
    """What `source` holds, by week; the tests change it."""
    return {NEW_YEAR: _visits(date(2022, 12, 26)), AFTER: _visits(date(2023, 1, 2))}


@pytest.fixture
def elsewhere() -> Iterator[None]:
    """This process is far away from UTC, which must not matter."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "Asia/Kathmandu")
        time.tzset()
        yield
    time.tzset()


def _visits(monday: date, per_day: int = 2) -> list[tuple[Any, ...]]:
    """Visits at both ends of each day."""
    rows: list[tuple[Any, ...]] = []
    for day in range(7):
        midnight = datetime(monday.year, monday.month, monday.day, tzinfo=UTC) + timedelta(days=day)
        for n, moment in enumerate([midnight, midnight + timedelta(days=1, microseconds=-1)][:per_day]):
            visit = f"{midnight:%Y-%m-%d}-{n}"
            rows.append((visit, moment, "guest\t1", "a\\b\nc", None, "ж", "DE", None))
    return rows


def _graph(sources: dict[str, list[tuple[Any, ...]]], partitions: dg.PartitionsDefinition = THREE_WEEKS) -> Any:
    declared = {
        **dataset(WeeklyVisits, partition="event_date", io_manager="weekly_tables"),
        "backfill_policy": dg.BackfillPolicy.single_run(),
    }

    @dg.asset(**declared, partitions_def=partitions)
    def visits(context: dg.AssetExecutionContext) -> DataFrame:
        frame = SparkEngine().spark_session.createDataFrame(sources.get(context.partition_keys[0], []), _COLUMNS)
        return frame.selectExpr("to_date(event_time) AS event_date", "*")

    @dg.asset(partitions_def=partitions, ins={"visits": dg.AssetIn(["serving", "weekly_visits"])})
    def reader(visits: DataFrame) -> None:
        sources["read"] = [
            tuple(row) for row in visits.select("visit_id", "event_time", "page", "device_name").collect()
        ]

    return [visits, reader]


def _run(assets: Any, key: str | None = None, **options: Any) -> dg.ExecuteInProcessResult:
    database = PostgresDatabase()
    resources = {"weekly_tables": WeeklyTables(database=database, spark=SparkEngine()), "database": database}
    return dg.materialize(assets, partition_key=key, resources=resources, **options)


def _seen() -> list[tuple[Any, ...]]:
    with PostgresDatabase().connect() as session, session.cursor() as cursor:
        cursor.execute("SELECT event_date, count(*) FROM serving.weekly_visits GROUP BY 1 ORDER BY 1")
        return cursor.fetchall()


def test_a_week_of_a_frame_arrives_value_by_value_and_again_the_same(
    sources: dict[str, list[tuple[Any, ...]]], elsewhere: None
) -> None:
    done = _run(_graph(sources), NEW_YEAR)
    (told,) = done.asset_materializations_for_node("serving__weekly_visits")
    assert told.metadata["week"].value == "2022-W52"
    assert told.metadata["weekly/table"].value == "weekly_visits_2022w52"
    assert told.metadata["dagster/partition_row_count"].value == 14
    days = [(date(2022, 12, 26) + timedelta(days=n), 2) for n in range(7)]
    assert _seen() == days

    _run(_graph(sources), AFTER)
    _run(_graph(sources), NEW_YEAR)
    assert _seen() == [*days, *((date(2023, 1, 2) + timedelta(days=n), 2) for n in range(7))]
    assert len(sources["read"]) == 14, "the reader of a week has that week"
    with PostgresDatabase().connect() as session, session.cursor() as cursor:
        cursor.execute(
            "SELECT visit_id, event_time, user_id, page, referral, device_name, country, is_bot "
            "FROM serving.weekly_visits WHERE event_date < '2023-01-02' ORDER BY event_time"
        )
        assert cursor.fetchall() == sources[NEW_YEAR]


def test_less_than_a_week_or_more_is_refused_and_told_that_the_week_is_the_unit(
    sources: dict[str, list[tuple[Any, ...]]],
) -> None:
    day = dg.DailyPartitionsDefinition("2023-01-02", end_date="2023-01-20")
    sources |= {"2023-01-05": sources[AFTER]}
    with pytest.raises(NotAWeek, match=r"`2023-01-05`, a Thursday,.*2023-W01.*Ask for `2023-01-02`"):
        _run(_graph(sources, day)[:1], "2023-01-05")
    with pytest.raises(NotAWeek, match="2023-01-02 00:00 to 2023-01-03 00:00 is not a week"):
        _run(_graph(sources, day)[:1], AFTER)
    # Dagster does not check the key of a run that is started with tags, and takes it for the week behind it.
    with pytest.raises(NotAWeek, match=r"`2023-01-05`, a Thursday"):
        _run(_graph(sources)[:1], tags={"dagster/partition": "2023-01-05"})
    both = {"dagster/asset_partition_range_start": NEW_YEAR, "dagster/asset_partition_range_end": AFTER}
    with pytest.raises(NotWeekly, match=r"this run has 2 weeks\. Backfill it with one run per week"):
        _run(_graph(sources)[:1], tags=both)
    static = dg.StaticPartitionsDefinition([AFTER])
    with pytest.raises(NotWeekly, match="its partitions are StaticPartitionsDefinition"):
        _run(_graph(sources, static)[:1], AFTER)


def test_the_jobs_freeze_thaw_and_widen_what_the_graph_serves(sources: dict[str, list[tuple[Any, ...]]]) -> None:
    assets = _graph(sources)[:1]
    jobs = {job.name: job for job in week_jobs(assets)}
    for key in (NEW_YEAR, AFTER):
        _run(assets, key)
    before = _seen()
    resources = {"database": PostgresDatabase()}

    done = jobs["freeze_weeks"].execute_in_process(resources=resources)
    (told,) = [e.asset_observation_data.asset_observation for e in done.all_events if e.is_asset_observation]
    assert told.asset_key == dg.AssetKey(["serving", "weekly_visits"])
    assert told.metadata["weekly/moved"].value == "2022-W52, 2023-W01"
    assert told.metadata["weekly/rows_copied"].value == 28
    with pytest.raises(WeekFrozen, match="run the job `thaw_week` for `2023-01-02`"):
        _run(assets, AFTER)

    config = {"ops": {"thaw_one_week": {"config": {"table": "serving/weekly_visits", "week": AFTER}}}}
    jobs["thaw_week"].execute_in_process(resources=resources, run_config=config)
    _run(assets, AFTER)
    done = jobs["add_week_columns"].execute_in_process(resources=resources)
    (told,) = [e.asset_observation_data.asset_observation for e in done.all_events if e.is_asset_observation]
    assert told.metadata["weekly/columns_added"].value == "none"
    assert _seen() == before

    config["ops"]["thaw_one_week"]["config"]["week"] = "2023-01-04"
    with pytest.raises(NotAWeek):
        jobs["thaw_week"].execute_in_process(resources=resources, run_config=config)


def test_only_weeks_that_are_over_are_frozen() -> None:
    last = datetime.fromisoformat(hourly.get_last_partition_key()[:10]).date()
    assert closed_before(0) == Week.of(last)
    assert closed_before(4) == Week.of(last - timedelta(weeks=4))


def test_the_graph_serves_its_visits_by_week(sources: dict[str, list[tuple[Any, ...]]]) -> None:
    class Enriched(dg.IOManager):
        def handle_output(self, context: dg.OutputContext, obj: Any) -> None:  # noqa: ARG002
            raise AssertionError("nothing is written through it")

        def load_input(self, context: dg.InputContext) -> DataFrame:
            hours = context.asset_partition_keys
            assert (hours[0], hours[-1]) == (hourly.get_first_partition_key(), hourly.get_last_partition_key())
            return SparkEngine().spark_session.createDataFrame(_visits(date(2024, 10, 7)), _COLUMNS)

    upstream = dg.AssetSpec(["silver", "visits_enriched"], partitions_def=hourly).with_io_manager_key("enriched")
    database = PostgresDatabase()
    defs = dg.Definitions(
        assets=[upstream, weekly_visits],
        resources={"enriched": Enriched(), "weekly_tables": WeeklyTables(database=database, spark=SparkEngine())},
    )
    job = defs.resolve_implicit_global_asset_job_def()
    job.execute_in_process(partition_key="2024-10-07")
    assert _seen() == [(date(2024, 10, 7) + timedelta(days=n), 2) for n in range(7)]
