"""Both flavours of the Incremental Loader over two and a half days of hours, backfilled by two workers at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg
import pytest
from instances import silent_instance
from platform_world import RATES, WORLD, Lakehouse, Platform, Report, key_of
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
END = START + timedelta(hours=60)  # the first of them are older than what is watched (`legacy_hours.WATCHED`)
HOURS = hours_between(START, END)
KEYS = [key_of(hour) for hour in HOURS]
HALVES = [KEYS[:30], KEYS[30:]]
# Of every hour: its first instant, one inside, and its last instant.
INSTANTS = (timedelta(), timedelta(minutes=17), timedelta(hours=1) - timedelta(microseconds=1))
LEGACY = "bronze/legacy_visits"
RETURNED = START + timedelta(hours=30, minutes=30)
# Of an hour that has a neighbour on both sides, and is not watched any more.
UNKEEPABLE = ["infinity", "-infinity", "0001-01-01 00:00:00+14", "10000-01-01 00:00:00+00", "4713-01-01 00:00:00+00 BC"]
UNKEPT = HOURS[5]
INSERT = "INSERT INTO legacy_visits (visit_id, event_time, user_id, page, ip, is_deleted, ingestion_time) VALUES "


def name_of(at: datetime) -> str:
    return f"hours-{at:%m%dT%H%M%S.%f}"


def received() -> list[tuple[Any, ...]]:
    """The hours' rows in the database, and those of an hour before and after them that none of them may see."""
    hours = [START - timedelta(hours=1), *HOURS, END]
    # The event lies a day before its receipt: who loads by event time finds other rows.
    return [
        (name_of(at), at - timedelta(days=1), "user", "home", "192.0.2.1", False, at)
        for at in (hour + instant for hour in hours for instant in INSTANTS)
    ]


@dataclass
class Loaded(Lakehouse):
    """A lake, and what the workers said that have loaded a half of the hours each."""

    reports: list[Report] = field(default_factory=list)


@pytest.fixture(scope="module")
def loaded(fed_platform: Platform, tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    """Two workers at the same time; while they read, an hour has times that only the database knows."""
    fed_platform.up()
    land_visits(fed_platform.landing, WORLD, HOURS, per_hour=10, irregularities=RATES)
    lake = Loaded(fed_platform.services, tmp_path_factory.mktemp("hours"))
    lake.environment["DE_CALENDAR"] = f"{START:%Y-%m-%dT%H}/{END:%Y-%m-%dT%H}"
    unkeepable = [
        (f"unkeepable-{n}", at, "user", "home", "192.0.2.1", False, UNKEPT) for n, at in enumerate(UNKEEPABLE)
    ]
    with fed_platform.at_home(), PostgresDatabase().connect() as session, session.cursor() as cursor:
        execute_values(cursor, f"{INSERT} %s", [*received(), *unkeepable])
    workers = [
        lake.start(
            {"assets": [LEGACY, "bronze/visits", "bronze/visits_dead_letter"], "first": keys[0], "last": keys[-1]}
        )
        for keys in HALVES
    ]
    lake.reports = [worker.end().succeeded() for worker in workers]
    with fed_platform.at_home(), PostgresDatabase().connect() as session, session.cursor() as cursor:
        cursor.execute("DELETE FROM legacy_visits WHERE visit_id = ANY(%s)", ([name for name, *_ in unkeepable],))
    return lake


def test_each_worker_read_the_rows_of_its_hours_and_no_others(loaded: Loaded) -> None:
    for report, keys in zip(loaded.reports, HALVES, strict=True):
        (predicates,) = {m["source/predicates"] for m in report.materialised(LEGACY)}
        end = datetime.strptime(keys[-1], "%Y-%m-%d-%H:%M") + timedelta(hours=1)
        assert f"GreaterThanOrEqual(ingestion_time,{keys[0][:10]} {keys[0][11:]}:00.0)" in predicates
        assert f"LessThan(ingestion_time,{end:%Y-%m-%d %H:%M}:00.0)" in predicates


def test_a_row_on_a_boundary_lands_once_in_the_hour_that_begins_with_it(loaded: Loaded) -> None:
    found = Counter((row["visit_id"], key_of(row["ingestion_hour"])) for row in loaded.rows(LEGACY))
    inside = [(name, at) for name, *_, at in received() if START <= at < END]
    assert found == Counter((name, key_of(at.replace(minute=0, second=0, microsecond=0))) for name, at in inside)


def test_every_landed_line_is_in_the_hour_that_received_it(loaded: Loaded, fed_platform: Platform) -> None:
    truth = fed_platform.truth
    dead = loaded.per_key("bronze/visits_dead_letter", "landing_hour")
    valid = loaded.per_key("bronze/visits", "landing_hour")
    assert {key: valid[key] + dead.get(key, 0) for key in KEYS} == {key_of(h): truth.hour(h).lines for h in HOURS}
    broken = {key_of(h): truth.hour(h).counts for h in HOURS}
    assert dead == {k: n for k, c in broken.items() if (n := c[Defect.MALFORMED] + c[Defect.MISSING])}


def test_what_the_producer_took_back_disappears_downstream_also_when_an_old_hour_is_loaded_again(
    loaded: Loaded, fed_platform: Platform
) -> None:
    taken_back = [name for name, *_, at in received() if START <= at < START + timedelta(hours=2)]
    with fed_platform.at_home(), PostgresDatabase().connect() as session, session.cursor() as cursor:
        cursor.execute(
            "UPDATE legacy_visits SET is_deleted = true, ingestion_time = %s WHERE visit_id = ANY(%s)",
            (RETURNED, taken_back),
        )
    later = key_of(RETURNED.replace(minute=0))
    # The hour of the deletion first, then one of those whose rows it took; the other one keeps its stale rows.
    loaded.run(
        {"assets": [LEGACY], "first": later, "last": later},
        {"assets": [LEGACY], "first": KEYS[1], "last": KEYS[1]},
        {"assets": ["silver/legacy_visits"]},
    ).succeeded()

    assert sum(row["is_deleted"] for row in loaded.rows(LEGACY)) == len(taken_back) == 6
    current = {row["visit_id"] for row in loaded.rows("silver/legacy_visits")}
    assert current == {name for name, *_, at in received() if START <= at < HOURS[-1] + timedelta(hours=1)} - set(
        taken_back
    )


def requested(loaded: Loaded, platform: Platform) -> list[str]:
    """The hours that the sensor asks for now."""
    lake = Lake(root_uri=str(loaded.root), spark=SparkEngine())
    resources = {"lake": lake, "database": PostgresDatabase()}
    with (
        platform.at_home(),
        dg.DagsterInstance.from_config(str(loaded.instance)) as instance,
        dg.build_sensor_context(instance, resources=resources) as context,
    ):
        result = legacy_hours_grown(context)
    assert isinstance(result, dg.SensorResult)
    return [str(request.partition_key) for request in result.run_requests or []]


def test_rows_of_a_transaction_that_was_open_across_the_load_are_loaded_when_it_has_committed(
    loaded: Loaded, fed_platform: Platform
) -> None:
    hour, number = HOURS[-3], len(HOURS) - 3
    late = ("committed late", hour, "user", "home", "192.0.2.1", False, hour + timedelta(minutes=5))
    again = {"assets": [LEGACY], "first": KEYS[number], "last": KEYS[number]}
    assert requested(loaded, fed_platform) == []
    with fed_platform.at_home(), PostgresDatabase().connect() as session, session.cursor() as cursor:
        cursor.execute(f"{INSERT} (%s, %s, %s, %s, %s, %s, %s)", late)
        loaded.run(again).succeeded()  # the hour is over, and its last row is not committed
        # One goes, one comes: a number of rows would not tell.
        cursor.execute("DELETE FROM legacy_visits WHERE visit_id = %s", (name_of(hour),))
        assert requested(loaded, fed_platform) == [], "nobody else sees it yet"

    def names() -> set[str]:
        return {row["visit_id"] for row in loaded.rows(LEGACY) if key_of(row["ingestion_hour"]) == KEYS[number]}

    assert "committed late" not in names()
    assert requested(loaded, fed_platform) == [KEYS[number]]
    loaded.run(again).succeeded()
    assert names() == {late[0], *(name_of(hour + at) for at in INSTANTS[1:])}
    assert requested(loaded, fed_platform) == []


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


@pytest.mark.pattern("filter_interceptor")
def test_a_time_that_only_the_database_knows_does_not_stop_its_hour(loaded: Loaded) -> None:
    """Its neighbours, in the hour and beside it, are there: the test of the boundaries finds every other row."""
    removed = {m["partition"]: m["filter/conditions"] for m in loaded.reports[0].materialised(LEGACY)}
    first = {key: told["conceivable_event_time"]["first"] for key, told in removed.items()}
    assert first == dict.fromkeys(HALVES[0], 0) | {key_of(UNKEPT): len(UNKEEPABLE)}


@pytest.fixture
def session(at_home: LocalServices) -> Iterator[SparkSession]:
    yield SparkEngine().spark_session
    close_connections()


def test_a_bound_that_the_database_does_not_evaluate_is_refused(session: SparkSession) -> None:
    with PostgresDatabase().connect() as database, database.cursor() as cursor:
        cursor.execute("CREATE TABLE IF NOT EXISTS received (id INT, ingestion_time TIMESTAMPTZ)")
    rows = session.read.format("jdbc").options(**PostgresDatabase().jdbc_options("received")).load()
    at, hour = F.col("ingestion_time"), F.lit(START)

    assert len(bounds(rows.where((at >= hour) & (at < F.lit(HOURS[1]))), "received", "ingestion_time")) == 2
    assert pushed_predicates(rows) == []
    unbounded = (
        rows,
        rows.where(at >= hour),  # nothing ends it: a backfill would read all that came since
        rows.where(F.date_trunc("HOUR", at) == hour),  # a function around the column stays in the engine
    )
    for frame in unbounded:
        with pytest.raises(UnboundedRead, match="`received`"):
            bounds(frame, "received", "ingestion_time")
