"""Both flavours of the Incremental Loader over a week of hours, backfilled by three workers at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg
import pytest
from instances import silent_instance
from platform_world import RATES, WORLD, Lakehouse, Platform, key_of
from psycopg2.extras import execute_values
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from de_assets.automation.triggers.legacy_due import LEGACY_VISITS, legacy_hours_due
from de_assets.automation.triggers.legacy_hours import legacy_hours_grown
from de_assets.automation.triggers.polling import POLL
from de_assets.definitions import defs
from de_assets.partitions import hourly
from de_assets.ranges import range_tags
from de_assets.sources.simulator import Defect, hours_between, land_visits
from de_resources.lake import Lake
from de_resources.local import LocalServices
from de_resources.postgres import PostgresDatabase
from de_resources.postgres.pushdown import UnboundedRead, bounds, pushed_predicates
from de_resources.spark import SparkEngine, close_connections

pytestmark = [pytest.mark.services, pytest.mark.pattern("incremental_loader")]

START = datetime(2024, 11, 4, tzinfo=UTC)
WEEK = hours_between(START, START + timedelta(days=7))
KEYS = [key_of(hour) for hour in WEEK]
THIRDS = [KEYS[:56], KEYS[56:112], KEYS[112:]]
# Of every hour: its first instant, one inside, and its last instant.
INSTANTS = (timedelta(), timedelta(minutes=17), timedelta(hours=1) - timedelta(microseconds=1))
LEGACY = "bronze/legacy_visits"
RETURNED = START + timedelta(hours=100, minutes=30)


def received() -> list[tuple[Any, ...]]:
    """The week's rows in the database, and a row before and after it that no hour of the week may see."""
    hours = [START - timedelta(hours=1), *WEEK, START + timedelta(days=7)]
    # The event lies a day before its receipt: who loads by event time finds other rows.
    return [
        (f"week-{at:%m%dT%H%M%S.%f}", at - timedelta(days=1), "user", "home", "192.0.2.1", False, at)
        for at in (hour + instant for hour in hours for instant in INSTANTS)
    ]


@pytest.fixture(scope="module")
def week(fed_platform: Platform, tmp_path_factory: pytest.TempPathFactory) -> Lakehouse:
    """A lake in which three workers have loaded a third of the week each, at the same time."""
    fed_platform.up()
    land_visits(fed_platform.landing, WORLD, WEEK, per_hour=10, irregularities=RATES)
    with fed_platform.at_home(), PostgresDatabase().connect() as session, session.cursor() as cursor:
        execute_values(
            cursor,
            "INSERT INTO legacy_visits (visit_id, event_time, user_id, page, ip, is_deleted, ingestion_time) VALUES %s",
            received(),
        )
    lake = Lakehouse(fed_platform.services, tmp_path_factory.mktemp("week"))
    lake.environment["DE_CALENDAR"] = f"{START:%Y-%m-%dT%H}/{START + timedelta(days=7):%Y-%m-%dT%H}"
    workers = [
        lake.start(
            {"assets": [LEGACY, "bronze/visits", "bronze/visits_dead_letter"], "first": keys[0], "last": keys[-1]}
        )
        for keys in THIRDS
    ]
    for worker, keys in zip(workers, THIRDS, strict=True):
        report = worker.end().succeeded()
        (predicates,) = {m["source/predicates"] for m in report.materialised(LEGACY)}
        end = datetime.strptime(keys[-1], "%Y-%m-%d-%H:%M") + timedelta(hours=1)
        assert f"GreaterThanOrEqual(ingestion_time,{keys[0][:10]} {keys[0][11:]}:00.0)" in predicates
        assert f"LessThan(ingestion_time,{end:%Y-%m-%d %H:%M}:00.0)" in predicates
    return lake


def test_a_row_on_a_boundary_lands_once_in_the_hour_that_begins_with_it(week: Lakehouse) -> None:
    found = Counter((row["visit_id"], key_of(row["ingestion_hour"])) for row in week.rows(LEGACY))
    inside = [(name, at) for name, *_, at in received() if START <= at < START + timedelta(days=7)]
    assert found == Counter((name, key_of(at.replace(minute=0, second=0, microsecond=0))) for name, at in inside)


def test_every_landed_line_of_the_week_is_in_the_hour_that_received_it(week: Lakehouse, fed_platform: Platform) -> None:
    truth = fed_platform.truth
    dead = week.per_key("bronze/visits_dead_letter", "landing_hour")
    valid = week.per_key("bronze/visits", "landing_hour")
    assert {key: valid[key] + dead.get(key, 0) for key in KEYS} == {key_of(h): truth.hour(h).lines for h in WEEK}
    broken = {key_of(h): truth.hour(h).counts for h in WEEK}
    assert dead == {k: n for k, c in broken.items() if (n := c[Defect.MALFORMED] + c[Defect.MISSING])}


def test_what_the_producer_took_back_disappears_downstream_also_when_an_old_hour_is_loaded_again(
    week: Lakehouse, fed_platform: Platform
) -> None:
    taken_back = [name for name, *_, at in received() if START <= at < START + timedelta(hours=2)]
    with fed_platform.at_home(), PostgresDatabase().connect() as session, session.cursor() as cursor:
        cursor.execute(
            "UPDATE legacy_visits SET is_deleted = true, ingestion_time = %s WHERE visit_id = ANY(%s)",
            (RETURNED, taken_back),
        )
    later = key_of(RETURNED.replace(minute=0))
    # The hour of the deletion first, then one of those whose rows it took; the other one keeps its stale rows.
    week.run(
        {"assets": [LEGACY], "first": later, "last": later},
        {"assets": [LEGACY], "first": KEYS[1], "last": KEYS[1]},
        {"assets": ["silver/legacy_visits"]},
    ).succeeded()

    assert sum(row["is_deleted"] for row in week.rows(LEGACY)) == len(taken_back) == 6
    current = {row["visit_id"] for row in week.rows("silver/legacy_visits")}
    assert current == {name for name, *_, at in received() if START <= at < WEEK[-1] + timedelta(hours=1)} - set(
        taken_back
    )


def requested(week: Lakehouse, platform: Platform) -> list[str]:
    """The hours that the sensor asks for now."""
    lake = Lake(root_uri=str(week.root), spark=SparkEngine())
    resources = {"lake": lake, "database": PostgresDatabase()}
    with (
        platform.at_home(),
        dg.DagsterInstance.from_config(str(week.instance)) as instance,
        dg.build_sensor_context(instance, resources=resources) as context,
    ):
        result = legacy_hours_grown(context)
    assert isinstance(result, dg.SensorResult)
    return [str(request.partition_key) for request in result.run_requests or []]


def test_rows_of_a_transaction_that_was_open_across_the_load_are_loaded_when_it_has_committed(
    week: Lakehouse, fed_platform: Platform
) -> None:
    hour, number = WEEK[-3], len(WEEK) - 3
    late = ("committed late", hour, "user", "home", "192.0.2.1", False, hour + timedelta(minutes=5))
    insert = "INSERT INTO legacy_visits VALUES (%s, %s, %s, %s, %s, %s, %s)"
    insert = insert.replace(" VALUES", " (visit_id, event_time, user_id, page, ip, is_deleted, ingestion_time) VALUES")
    again = {"assets": [LEGACY], "first": KEYS[number], "last": KEYS[number]}
    assert requested(week, fed_platform) == []
    with fed_platform.at_home(), PostgresDatabase().connect() as session, session.cursor() as cursor:
        cursor.execute(insert, late)
        week.run(again).succeeded()  # the hour is over, and its last row is not committed
        # One goes, one comes: a number of rows would not tell.
        cursor.execute("DELETE FROM legacy_visits WHERE visit_id = %s", (f"week-{hour:%m%dT%H%M%S.%f}",))
        assert requested(week, fed_platform) == [], "nobody else sees it yet"

    def names() -> set[str]:
        return {row["visit_id"] for row in week.rows(LEGACY) if key_of(row["ingestion_hour"]) == KEYS[number]}

    assert "committed late" not in names()
    assert requested(week, fed_platform) == [KEYS[number]]
    week.run(again).succeeded()
    assert names() == {late[0], *(f"week-{hour + at:%m%dT%H%M%S.%f}" for at in INSTANTS[1:])}
    assert requested(week, fed_platform) == []


def test_hours_that_are_over_are_requested_without_anybody(fed_platform: Platform) -> None:
    """By the calendar of this process: what is missing, in as few runs as it has stretches."""
    fed_platform.up()
    keys = hourly.get_partition_keys()

    def tick() -> list[dg.RunRequest] | str | None:
        with dg.build_sensor_context(instance, resources={"database": PostgresDatabase()}) as context:
            answer = legacy_hours_due(context)
        return answer.skip_message if isinstance(answer, dg.SkipReason) else answer

    asked = {POLL: LEGACY}
    with fed_platform.at_home(), silent_instance() as instance:
        with PostgresDatabase().connect() as session, session.cursor() as cursor:
            cursor.execute("ALTER TABLE legacy_visits RENAME TO legacy_elsewhere")
        try:
            assert "holds no row" in str(tick())
        finally:
            with PostgresDatabase().connect() as session, session.cursor() as cursor:
                cursor.execute("ALTER TABLE legacy_elsewhere RENAME TO legacy_visits")
        assert tick() == [dg.RunRequest(tags={**asked, **range_tags(keys[0], keys[-1])})]
        for key in keys[:10] + keys[11:-3]:
            instance.report_runless_asset_event(dg.AssetMaterialization(LEGACY_VISITS, partition=key))
        alone, newest = dg.RunRequest(partition_key=keys[10], tags=asked), range_tags(keys[-3], keys[-1])
        assert tick() == [alone, dg.RunRequest(tags={**asked, **newest})]
        run = instance.create_run_for_job(
            dg.define_asset_job("load", selection=[LEGACY_VISITS]).resolve(asset_graph=defs.resolve_asset_graph()),
            tags={**asked, **newest},
        )
        assert tick() == [alone], "a run is about to load the others"
        instance.report_run_failed(run)
        assert "1 runs failed" in str(tick()), "it is tried again, and less and less often"


UNKEEPABLE = ["infinity", "-infinity", "0001-01-01 00:00:00+14", "10000-01-01 00:00:00+00", "4713-01-01 00:00:00+00 BC"]


@pytest.mark.pattern("filter_interceptor")
def test_a_time_that_only_the_database_knows_does_not_stop_its_hour(week: Lakehouse, fed_platform: Platform) -> None:
    hour, rows = WEEK[50], [row["visit_id"] for row in week.rows(LEGACY)]
    named = [f"unkeepable-{number}" for number in range(len(UNKEEPABLE))]
    with fed_platform.at_home(), PostgresDatabase().connect() as session, session.cursor() as cursor:
        for name, at in zip(named, UNKEEPABLE, strict=True):
            cursor.execute(
                "INSERT INTO legacy_visits VALUES (%s, %s, 'user', 'home', '192.0.2.1', false, %s)", (name, at, hour)
            )
    try:
        report = week.run({"assets": [LEGACY], "first": key_of(hour), "last": key_of(WEEK[51])}).succeeded()
    finally:
        with fed_platform.at_home(), PostgresDatabase().connect() as session, session.cursor() as cursor:
            cursor.execute("DELETE FROM legacy_visits WHERE visit_id = ANY(%s)", (named,))

    removed = {m["partition"]: m["filter/conditions"] for m in report.materialised(LEGACY)}
    first = {key: told["conceivable_event_time"]["first"] for key, told in removed.items()}
    assert first == {key_of(hour): len(UNKEEPABLE), key_of(WEEK[51]): 0}
    assert sorted(row["visit_id"] for row in week.rows(LEGACY)) == sorted(rows), "its neighbours are there"


@pytest.fixture
def session(at_home: LocalServices) -> Iterator[SparkSession]:
    yield SparkEngine().spark_session
    close_connections()


def test_a_bound_that_the_database_does_not_evaluate_is_refused(session: SparkSession) -> None:
    with PostgresDatabase().connect() as database, database.cursor() as cursor:
        cursor.execute("CREATE TABLE IF NOT EXISTS received (id INT, ingestion_time TIMESTAMPTZ)")
    rows = session.read.format("jdbc").options(**PostgresDatabase().jdbc_options("received")).load()
    at, hour = F.col("ingestion_time"), F.lit(START)

    assert len(bounds(rows.where((at >= hour) & (at < F.lit(WEEK[1]))), "received", "ingestion_time")) == 2
    assert pushed_predicates(rows) == []
    unbounded = (
        rows,
        rows.where(at >= hour),  # nothing ends it: a backfill would read all that came since
        rows.where(F.date_trunc("HOUR", at) == hour),  # a function around the column stays in the engine
    )
    for frame in unbounded:
        with pytest.raises(UnboundedRead, match="`received`"):
            bounds(frame, "received", "ingestion_time")
