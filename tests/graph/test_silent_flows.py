"""Flows that fall silent and begin again, seen by checks and by a watch, under a clock that the test winds. No engine."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pandera.pyspark as pa
import pyarrow
import pyspark.sql.types as T
import pytest
from deltalake import DeltaTable, write_deltalake

from de_assets.automation.triggers.watch import WATCH, standing, watch
from de_assets.definitions import defs
from de_checks.freshness import (
    Commits,
    LandedFolders,
    completeness_check,
    flow_check,
    heartbeat_check,
    newest_event_check,
)
from de_checks.freshness.commits import NotAPart
from de_checks.freshness.flow import NoPromise
from de_checks.patterns import STANDING
from de_resources.contract.freshness import Freshness
from de_resources.heartbeat import Heartbeat
from de_resources.lake import Lake
from de_resources.local.endpoints import ServiceUnavailable
from de_resources.spark import SparkEngine

pytestmark = pytest.mark.pattern("flow_interruption_detector")

HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
HOURS = dg.HourlyPartitionsDefinition("2024-01-08-00:00", end_date="2024-02-01-00:00")
NINE = datetime(2024, 1, 8, 9, tzinfo=UTC)
FOLDER = dg.AssetSpec(["sources", "drop"])
TABLE = dg.AssetSpec(["bronze", "readings"], partitions_def=HOURS, metadata={"partition_expr": "hour"})


class Readings(pa.DataFrameModel):
    """One row per reading."""

    read_at: T.TimestampType = pa.Field(nullable=False)
    hour: T.TimestampType = pa.Field(nullable=False)

    class Config:
        name = "bronze.readings"
        metadata = {"partitioned_by": ["hour"], "freshness": {"column": "read_at", "silence": 2 * HOUR}}  # noqa: RUF012


PROMISED = TABLE.replace_attributes(metadata={**TABLE.metadata, "contract": f"{__name__}:Readings"})


@dataclass
class World:
    """An instance, a drop folder, a lake, a clock, and what a daemon remembers."""

    root: Path
    instance: dg.DagsterInstance
    now: datetime = NINE
    away: bool = False
    checks: Sequence[dg.AssetChecksDefinition] = ()
    assets: Sequence[Any] = (FOLDER, TABLE)
    holds_for: timedelta = timedelta(0)
    cursor: str | None = None
    known: set[str | None] = field(default_factory=set)

    def clock(self) -> datetime:
        return self.now

    def landed(self, _resources: object, _believable: datetime) -> list[tuple[datetime, datetime]] | None:
        if self.away:
            raise ServiceUnavailable("drop", "far away", "wait for it")
        folder = self.root / "drop"
        starts = [datetime.fromisoformat(each.name) for each in folder.iterdir()] if folder.exists() else None
        return None if starts is None else sorted(((start, start + HOUR) for start in starts), reverse=True)

    def land(self, start: datetime) -> Path:
        """A folder with a file."""
        folder = self.root / "drop" / start.isoformat()
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "data.json").write_text("{}\n")
        return folder

    def load(self, start: datetime, rows: int = 1, at: datetime | None = None) -> None:
        """Rows of an hour are committed; `at` is the clock of their writer."""
        table = pyarrow.table(
            {
                "read_at": pyarrow.array([start + 30 * MINUTE] * rows, pyarrow.timestamp("us", "UTC")),
                "hour": pyarrow.array([start] * rows, pyarrow.timestamp("us", "UTC")),
            }
        )
        write_deltalake(self.uri, table, mode="append", partition_by=["hour"])
        self.date(at or start + HOUR + 5 * MINUTE)

    def date(self, at: datetime) -> None:
        """Let the newest commit be of this time."""
        log = sorted((Path(self.uri) / "_delta_log").glob("*.json"))[-1]
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        for line in lines:
            if "commitInfo" in line:
                line["commitInfo"]["timestamp"] = int(at.timestamp() * 1000)
        log.write_text("\n".join(map(json.dumps, lines)))

    @property
    def uri(self) -> str:
        return str(self.root / "lake" / "bronze" / "readings")

    @property
    def resources(self) -> dict[str, Any]:
        return {"lake": Lake(root_uri=str(self.root / "lake"), spark=SparkEngine())}

    @property
    def definitions(self) -> dg.Definitions:
        return dg.Definitions(
            assets=self.assets, asset_checks=self.checks, sensors=[self.sensor], resources=self.resources
        )

    @property
    def sensor(self) -> dg.SensorDefinition:
        return watch("silent_flows", standing(self.checks), holds_for=self.holds_for, now=self.clock)

    def tick(self) -> list[dg.RunRequest]:
        """One look of the daemon, which starts no second run for a key that it knows."""
        sensor, definitions = self.sensor, self.definitions
        needed = {key: value for key, value in self.resources.items() if key in sensor.required_resource_keys}
        with dg.build_sensor_context(
            self.instance, self.cursor, definitions=definitions, resources=needed, sensor_name=sensor.name
        ) as context:
            answer = sensor.evaluate_tick(context)
        self.cursor = answer.cursor
        new = [each for each in answer.run_requests or [] if each.run_key not in self.known]
        self.known |= {each.run_key for each in new}
        return new

    def run(self, *keys: dg.AssetCheckKey, **tags: str) -> list[dg.AssetCheckEvaluation]:
        """A run of these checks, and what it records."""
        job = self.definitions.resolve_implicit_global_asset_job_def()
        part = job.get_subset(asset_selection=set(), asset_check_selection=set(keys))
        return part.execute_in_process(
            instance=self.instance, tags=tags, raise_on_error=False
        ).get_asset_check_evaluations()

    def pass_(self, ticks: int = 1) -> list[tuple[bool, str]]:
        """The daemon looks, and runs what it is asked for: what was recorded."""
        told: list[tuple[bool, str]] = []
        for _ in range(ticks):
            for request in self.tick():
                found = self.run(*request.asset_check_keys or [], **request.tags)
                told += [(each.passed, str(each.metadata["state"].value)) for each in found]
        return told

    def verdict(self) -> dg.AssetCheckEvaluation:
        """What the one check says in a run of its own."""
        (check,) = self.checks
        (found,) = self.run(*check.check_keys)
        return found


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield World(tmp_path, instance)


def files_check(world: World, **more: Any) -> dg.AssetChecksDefinition:
    layer = LandedFolders(world.landed, resources=())
    return flow_check(
        FOLDER,
        layer,
        name="files_keep_landing",
        promise=Freshness(every=HOUR, delay=30 * MINUTE),
        now=world.clock,
        **more,
    )


class TestWatch:
    @pytest.mark.red_check("files_keep_landing")
    def test_one_verdict_when_a_flow_stops_and_one_when_it_goes_on(self, world: World) -> None:
        world.checks = [files_check(world)]
        world.land(NINE - HOUR)
        assert world.pass_() == [(True, "flowing")], "something has to be there that can change"
        told = []
        for _ in range(60):  # until 14:00; the hour from 9 is owed at 10:30
            world.now += 5 * MINUTE
            told += world.pass_()
        assert told == [(False, "opened")], "however long it is silent"
        opened = _last(world)
        assert opened["last_good"] == NINE.timestamp() - 1e-6
        assert opened["expected_by"] == (NINE + HOUR + 30 * MINUTE).timestamp()

        world.land(NINE)
        assert world.pass_(3) == [], "an hour of this morning is not yet the present"
        world.land(NINE + 4 * HOUR)
        assert world.pass_(3) == [(True, "recovered")]
        world.now += 3 * HOUR
        assert world.pass_(3) == [(False, "opened")]

    def test_a_restart_and_a_lost_cursor_repeat_nothing(self, world: World) -> None:
        world.checks = [files_check(world)]
        world.land(NINE - HOUR)
        world.pass_()
        world.now += 6 * HOUR
        assert world.pass_() == [(False, "opened")]
        world.cursor, world.known = None, set()
        assert world.pass_(3) == []

    def test_a_request_whose_run_has_not_begun_is_not_made_again(self, world: World) -> None:
        world.checks = [files_check(world)]
        world.land(NINE - HOUR)
        assert len(world.tick()) == 1
        assert [world.tick(), world.tick()] == [[], []]

    def test_what_is_mended_within_minutes_is_not_told(self, world: World) -> None:
        world.checks, world.holds_for = [files_check(world)], 3 * MINUTE
        world.land(NINE - HOUR)
        world.pass_()
        world.now = NINE + HOUR + 31 * MINUTE
        assert world.pass_() == []
        world.land(NINE)
        world.now += 2 * MINUTE
        assert world.pass_() == []
        world.now = NINE + 2 * HOUR + 31 * MINUTE
        assert world.pass_() == [], "the wait begins again"
        world.now += 3 * MINUTE
        assert world.pass_() == [(False, "opened")]

    def test_a_clock_that_is_set_back_begins_to_wait_anew_and_does_not_wait_for_ever(self, world: World) -> None:
        world.checks, world.holds_for = [files_check(world)], 3 * MINUTE
        world.land(NINE - HOUR)
        world.pass_()
        world.now = NINE + 9 * HOUR
        world.tick()
        world.now = NINE + 5 * HOUR
        assert world.pass_() == []
        world.now += 3 * MINUTE
        assert world.pass_() == [(False, "opened")]

    def test_a_source_that_cannot_be_asked_is_not_called_silent_and_the_others_are_asked(self, world: World) -> None:
        beating = heartbeat_check(FOLDER, ["relay"], now=world.clock)
        world.checks = [files_check(world), beating]
        world.land(NINE - HOUR)
        heart = Heartbeat("relay", clock=world.clock)
        heart.beat()
        assert world.pass_() == [(True, "flowing")] * 2
        world.away, world.now = True, NINE + 9 * HOUR
        assert world.pass_(2) == [(False, "opened")], "of the job, whose heart can be heard"
        heart.stop()

    def test_a_check_that_breaks_is_run_so_that_people_see_it_with_growing_pauses(self, world: World) -> None:
        world.checks = [files_check(world)]
        world.land(NINE - HOUR).with_name("no time").mkdir()
        (request,) = world.tick()
        world.run(*request.asset_check_keys or [], **request.tags)
        runs = world.instance.get_runs(dg.RunsFilter(tags={WATCH: "sources/drop:files_keep_landing"}))
        assert [run.status for run in runs] == [dg.DagsterRunStatus.FAILURE]
        assert [world.tick() for _ in range(5)] == [[]] * 5

    def test_what_never_began_is_left_alone_and_partitions_of_an_asset_that_never_ran_as_well(
        self, world: World
    ) -> None:
        @dg.asset(partitions_def=HOURS)
        def never() -> None: ...

        complete = completeness_check(never, now=world.clock)
        committed = flow_check(PROMISED, Commits(), name="committed", now=world.clock)
        world.assets = [FOLDER, TABLE, never]
        world.checks = [files_check(world), complete, committed, heartbeat_check(FOLDER, ["nobody"], now=world.clock)]
        for _ in range(3):
            assert world.pass_() == []
            world.now += 24 * HOUR

    def test_missing_partitions_are_told_though_the_asset_does_not_run(self, world: World) -> None:
        @dg.asset(partitions_def=HOURS)
        def hourly() -> None: ...

        world.assets, world.checks = [hourly], [completeness_check(hourly, now=world.clock)]
        for hour in range(9):
            world.instance.report_runless_asset_event(
                dg.AssetMaterialization("hourly", partition=f"2024-01-08-{hour:02}:00")
            )
        assert world.pass_() == [(True, "flowing")]
        world.now += HOUR
        assert world.pass_(3) == [(False, "opened")]
        assert _last(world)["last_good"] == NINE.timestamp()
        world.now += HOUR
        assert world.pass_(3) == []
        for hour in (9, 10):
            world.instance.report_runless_asset_event(
                dg.AssetMaterialization("hourly", partition=f"2024-01-08-{hour:02}:00")
            )
        assert world.pass_(3) == [(True, "recovered")]


def _last(world: World) -> dict[str, Any]:
    """The metadata of the newest recorded verdict of the one check."""
    (key,) = world.checks[0].check_keys
    (record,) = world.instance.event_log_storage.get_asset_check_execution_history(key, limit=1)
    assert record.evaluation is not None
    return {name: entry.value for name, entry in record.evaluation.metadata.items()}


class TestStorage:
    def test_a_file_that_is_touched_copied_or_repaired_is_no_new_one(self, world: World) -> None:
        world.checks = [files_check(world)]
        old, _ = world.land(NINE - 5 * HOUR), world.land(NINE - HOUR)
        world.now = NINE + 6 * HOUR
        (old / "data.json").touch()
        (old / "repaired.json").write_text("{}\n")
        found = world.verdict()
        assert not found.passed
        assert found.metadata["last_good"].value == NINE.timestamp() - 1e-6
        assert found.metadata["age_seconds"].value == 6 * 3600
        assert found.metadata["overdue_seconds"].value == 4.5 * 3600
        assert found.metadata["layer"].value == "storage"
        assert "2024-01-08 08:59:59 UTC" in (found.description or "")

    def test_a_folder_of_the_future_is_a_wrong_clock_and_no_sign_of_life(self, world: World) -> None:
        world.checks = [files_check(world)]
        world.land(NINE + 90_000 * HOUR)
        assert not world.verdict().passed
        world.land(NINE - 5 * HOUR)
        found = world.verdict()
        assert not found.passed
        assert found.metadata["ahead"].value == 1
        assert found.metadata["last_good"].value == (NINE - 4 * HOUR).timestamp() - 1e-6

    def test_a_source_that_is_not_here_owes_nothing_and_one_that_vanished_does(self, world: World) -> None:
        world.checks = [files_check(world)]
        assert (world.verdict().passed, world.verdict().metadata["state"].value) == (True, "absent")
        folder = world.land(NINE - HOUR)
        assert world.verdict().passed
        (folder / "data.json").unlink()
        folder.rmdir()
        for gone in (world.verdict(), world.verdict()):
            assert not gone.passed
            assert gone.metadata["last_good"].value == NINE.timestamp() - 1e-6

    def test_where_the_calendar_ends_nothing_more_is_owed(self, world: World) -> None:
        world.checks = [files_check(world, ends=lambda: NINE)]
        world.land(NINE - HOUR)
        world.now = NINE + 20_000 * HOUR
        assert world.verdict().passed
        assert world.verdict().metadata["age_seconds"].value == 0


class TestMetadata:
    def check(self, world: World, **more: Any) -> dg.AssetChecksDefinition:
        return flow_check(PROMISED, Commits(**more), name="rows_keep_coming", now=world.clock)

    def test_the_promise_is_the_contracts(self, world: World) -> None:
        world.checks = [self.check(world)]
        for start in (NINE - 2 * HOUR, NINE - HOUR):
            world.load(start)
        world.now = NINE + 2 * HOUR - MINUTE
        assert world.verdict().passed
        world.now = NINE + 2 * HOUR
        found = world.verdict()
        assert not found.passed
        assert found.metadata["last_good"].value == NINE.timestamp() - 1e-6

    @pytest.mark.red_check("rows_keep_coming")
    def test_compaction_vacuum_and_a_backfill_do_not_hide_an_interruption(self, world: World) -> None:
        world.checks = [self.check(world)]
        for start in (NINE - 3 * HOUR, NINE - 2 * HOUR, NINE - HOUR):
            world.load(start)
            world.load(start)
        world.now = NINE + 6 * HOUR
        assert not world.verdict().passed
        DeltaTable(world.uri).optimize.compact()
        world.date(world.now)
        DeltaTable(world.uri).vacuum(0, dry_run=False, enforce_retention_duration=False)
        world.date(world.now)
        assert not world.verdict().passed
        world.load(NINE - 3 * HOUR, at=world.now)  # an old hour again
        world.load(NINE - HOUR, at=world.now)  # the newest hour again
        world.load(NINE + 5 * HOUR, rows=0, at=world.now)  # nothing of the present one
        found = world.verdict()
        assert not found.passed
        assert found.metadata["last_good"].value == NINE.timestamp() - 1e-6
        world.load(NINE + 5 * HOUR, at=world.now)
        assert world.verdict().passed

    def test_a_writer_whose_clock_is_ahead_is_not_believed(self, world: World) -> None:
        world.checks = [self.check(world)]
        world.load(NINE - 5 * HOUR)
        world.load(NINE - HOUR, at=NINE + 900 * HOUR)
        found = world.verdict()
        assert not found.passed
        assert found.metadata["ahead"].value == 1
        assert found.metadata["last_good"].value == (NINE - 4 * HOUR).timestamp() - 1e-6

    def test_a_table_that_was_never_written_has_not_begun_and_an_unknown_part_is_said(self, world: World) -> None:
        world.checks = [self.check(world)]
        assert (world.verdict().passed, world.verdict().metadata["state"].value) == (True, "not_begun")
        world.load(NINE - HOUR)
        world.checks = [self.check(world, part="region")]
        (key,) = world.checks[0].check_keys
        assert world.run(key) == []
        runs = world.instance.get_runs()
        said = "\n".join(str(entry) for entry in world.instance.all_logs(runs[0].run_id))
        assert NotAPart.__name__ in said

    def test_without_a_promise_there_is_no_check(self) -> None:
        with pytest.raises(NoPromise):
            flow_check(TABLE, Commits(), name="rows_keep_coming")
        with pytest.raises(NoPromise):
            newest_event_check(TABLE)


class TestData:
    def test_column_and_longest_silence_are_the_contracts(self, world: World) -> None:
        world.checks = [newest_event_check(PROMISED, now=world.clock)]
        world.load(NINE - HOUR)
        world.now = NINE + HOUR + 30 * MINUTE
        assert world.verdict().passed
        world.now += MINUTE
        found = world.verdict()
        assert not found.passed
        assert found.metadata["newest_event"].value == (NINE - 30 * MINUTE).timestamp()
        assert found.metadata["layer"].value == "data"

    def test_each_part_is_a_flow_of_its_own(self, world: World) -> None:
        world.checks = [newest_event_check(PROMISED, part="hour", now=world.clock)]
        world.load(NINE - 3 * HOUR)
        world.load(NINE - HOUR)
        found = world.verdict()
        assert not found.passed
        assert found.metadata["silent_parts"].value == 1
        assert found.metadata["parts"].value == 2
        assert "06:00:00" in found.metadata["silent"].value[0]


class TestHeartbeat:
    @pytest.mark.red_check("job_is_alive")
    def test_a_job_is_alive_without_data_and_dead_without_a_beat(self, world: World) -> None:
        world.checks = [heartbeat_check(FOLDER, ["relay", "other"], now=world.clock)]
        heart, other = (Heartbeat(name, clock=world.clock) for name in ("relay", "other"))
        heart.beat(data=True)
        for _ in range(60):
            world.now += MINUTE
            heart.beat()
            other.beat()
        assert world.verdict().passed, "nothing came for an hour"
        assert world.verdict().metadata["data_at"].value == {"relay": NINE.isoformat()}
        for _ in range(3):
            world.now += MINUTE
            heart.beat()
        found = world.verdict()
        assert not found.passed
        assert found.metadata["silent"].value == ["other"], "a dead one among several"
        started_again = Heartbeat("other", clock=world.clock)
        started_again.beat()
        assert world.verdict().passed, "it is up again"
        for _ in range(3):
            world.now += MINUTE
            heart.beat()
        assert not world.verdict().passed
        started_again.stop()
        assert world.verdict().passed, "it ended in order"
        heart.stop()
        assert world.verdict().passed


NOT_WATCHED = {
    "sources/access_log": "a person hands it over; what is landed of it is watched",
    "sources/users_table": "what changes in it is relayed; its heart and its lag are watched",
    "sources/features_topic": "a release comes when there is one: nobody can say how soon, and its reader's lag is watched",
}


def test_every_source_of_the_graph_is_watched_or_excused_by_name() -> None:
    """At the source itself, or at the bronze table that is all it is read into."""
    graph = defs.resolve_asset_graph()
    watched = {
        key.asset_key
        for key in graph.asset_check_keys
        if graph.get_check_spec(key).metadata.get(STANDING)
        and "pattern/flow_interruption_detector" in graph.get_check_spec(key).metadata
    }
    sources = {spec.key for spec in defs.resolve_all_asset_specs() if spec.key.path[0] == "sources"}
    places = {key: {key, *(c for c in graph.get(key).child_keys if c.path[0] == "bronze")} for key in sources}
    silent = {key.to_user_string() for key, at in places.items() if not at & watched}
    assert silent == NOT_WATCHED.keys()
