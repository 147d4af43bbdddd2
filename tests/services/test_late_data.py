"""Dynamic Late Data Integrator on a real PostgreSQL and real Delta tables: what the sensors request, and what they tell."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Barrier
from typing import Any
from uuid import uuid4

import dagster as dg
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import warm_process
from deltalake import DeltaTable, write_deltalake
from waiting import PATIENCE

from de_assets.automation.late_data.integrator import LEASE, Moment, late_data_sensor
from de_assets.automation.late_data.report import LATE_PARTITIONS
from de_assets.automation.late_data.runs import CLAIM_TAG
from de_assets.ranges import range_tags
from de_checks.per_key import Target
from de_resources.delta.read_versions import READ, ReadVersions
from de_resources.lake import Lake
from de_resources.late_data.plan import Policy
from de_resources.local import LocalServices
from de_resources.postgres import PostgresDatabase
from de_resources.spark import SparkEngine

pytestmark = [pytest.mark.services, pytest.mark.pattern("dynamic_late_data_integrator")]

DAYS_BY_NUMBER = range(1, 6)
HOURS = dg.HourlyPartitionsDefinition("2024-01-01-00:00", end_date="2024-01-07-00:00")
DAYS = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-01-07")
PRESENT = datetime(2024, 1, 6, tzinfo=UTC)
POLICY = Policy(max_age=timedelta(days=4), settle=timedelta(0), max_attempts=2)


def day(number: int) -> str:
    return f"2024-01-{number:02}"


def hour(number: int, of_day: int = 3) -> str:
    return f"2024-01-{number:02}-{of_day:02}:00"


@dataclass
class World:
    """Visits by hour, their sums per day (`daily`) and up to each day (`total`), the sensor, and a clock to wind."""

    lake: Path
    instance: dg.DagsterInstance
    layer: str = field(default_factory=lambda: f"late_{uuid4().hex[:8]}")
    present: datetime = PRESENT
    forward: timedelta = timedelta()
    results: dict[tuple[str, str], int] = field(default_factory=dict)
    meanwhile: Callable[[], object] = lambda: None
    broken: bool = False
    launched: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.visits, self.daily, self.total = (dg.AssetKey([self.layer, n]) for n in ("visits", "daily", "total"))
        self.late = dg.AssetKey([self.layer, "late"])
        self.sensors = {
            name: late_data_sensor(
                f"late_{name}",
                {key: self.visits},
                apart={key: (self.late, "hour")} if name == "apart" else {},
                policy=POLICY,
                clock=lambda: Moment(self.present, datetime.now(UTC) + self.forward),
                description="",
            )
            for name, key in (("daily", self.daily), ("apart", self.daily), ("total", self.total))
        }
        self.defs = dg.Definitions(
            assets=[self._visits(), self._late(), self._consumer("daily"), self._consumer("total", stateful=True)],
            asset_checks=[self._gate()],
            sensors=list(self.sensors.values()),
            resources=self.resources,
        )
        self.job = self.defs.resolve_implicit_global_asset_job_def()

    @property
    def resources(self) -> dict[str, Any]:
        lake = Lake(root_uri=str(self.lake), spark=SparkEngine())
        return {"lake": lake, "database": PostgresDatabase()}

    @property
    def uri(self) -> str:
        return str(self.lake / self.layer / "visits")

    @property
    def late_uri(self) -> str:
        return str(self.lake / self.layer / "late")

    def _visits(self) -> dg.AssetsDefinition:
        @dg.asset(key=self.visits, partitions_def=HOURS, metadata={"partition_expr": "hour"})
        def visits() -> None: ...

        return visits

    def _late(self) -> dg.AssetsDefinition:
        layout = {"partition_expr": "landed", "partitioned_by": ["landed", "hour"]}

        @dg.asset(key=self.late, partitions_def=HOURS, metadata=layout)
        def late() -> None: ...

        return late

    def _gate(self) -> dg.AssetChecksDefinition:
        @dg.asset_check(asset=self.visits, partitions_def=HOURS, blocking=True)
        def good(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
            raise AssertionError("judged by hand")

        return good

    def _consumer(self, name: str, *, stateful: bool = False) -> dg.AssetsDefinition:
        @dg.asset(
            key=[self.layer, name],
            deps=[self.visits, self.late],
            partitions_def=DAYS,
            metadata={"stateful": True} if stateful else {},
            backfill_policy=None if stateful else dg.BackfillPolicy.single_run(),
        )
        def consumer(context: dg.AssetExecutionContext, lake: Lake) -> dg.MaterializeResult:
            read = ReadVersions()
            read.note(lake.table(self.visits))
            version = read.tables[f"{self.layer}.visits"]["version"]
            sums = sums_of(self.uri, version)
            if lake.table(self.late).log() is not None:
                read.note(lake.table(self.late))
                sums += sums_of(self.late_uri, read.tables[f"{self.layer}.late"]["version"])
            self.meanwhile()
            if self.broken:
                raise dg.Failure("broken on purpose")
            for key in context.partition_keys:
                before = self.results.get((name, day(int(key[-2:]) - 1)), 0) if stateful else 0
                self.results[name, key] = before + sums[key]
            return dg.MaterializeResult(metadata={READ: dg.MetadataValue.json(read.tables)})

        return consumer

    def land(self, *hours: str, value: int = 1) -> None:
        """Somebody appends a row to each of these hours."""
        rows = pa.table({"hour": moments(hours), "value": [value] * len(hours)})
        write_deltalake(self.uri, rows, partition_by=["hour"], mode="append")

    def land_late(self, landed: str, of: Sequence[str], value: int = 1) -> None:
        """In an hour a row of each of these others comes."""
        rows = {"landed": moments([landed] * len(of)), "hour": moments(of), "value": [value] * len(of)}
        write_deltalake(self.late_uri, pa.table(rows), partition_by=["landed", "hour"], mode="append")

    def run(self, name: str, key: str) -> bool:
        """A person runs a partition."""
        return self._execute([dg.AssetKey([self.layer, name])], key, {})

    def tick(self, name: str = "daily") -> dg.SensorResult | dg.SkipReason:
        with dg.build_sensor_context(
            instance=self.instance, definitions=self.defs, resources=self.resources, sensor_name=f"late_{name}"
        ) as context:
            result = self.sensors[name](context)
        assert isinstance(result, dg.SensorResult | dg.SkipReason)
        if isinstance(result, dg.SensorResult):
            for event in result.asset_events:
                self.instance.report_runless_asset_event(event)  # as the daemon does
        return result

    def launch(self, result: dg.SensorResult | dg.SkipReason) -> list[list[str]]:
        """Execute what was requested as the daemon would: no second run for a key. Returns the partitions of each."""
        done = []
        for request in (result.run_requests or []) if isinstance(result, dg.SensorResult) else []:
            assert request.run_key is not None
            if request.run_key not in self.launched:
                self.launched.append(request.run_key)
                self._execute(request.asset_selection or [], request.partition_key, request.tags)
                done.append(partitions(request))
        return done

    def settle(self, name: str = "daily") -> list[list[str]]:
        """Tick and launch until nothing is requested."""
        done: list[list[str]] = []
        for _ in range(20):
            launched = self.launch(self.tick(name))
            if not launched:
                return done
            done += launched
        raise AssertionError("it never ends")

    def _execute(self, keys: Any, partition: str | None, tags: Any) -> bool:
        return self.job.execute_in_process(
            instance=self.instance,
            asset_selection=list(keys),
            partition_key=partition,
            tags=dict(tags),
            raise_on_error=False,
        ).success

    def news(self) -> list[dict[str, Any]]:
        """What people were told, oldest first."""
        wanted = dg.AssetRecordsFilter(asset_key=LATE_PARTITIONS)
        records = self.instance.fetch_observations(wanted, limit=100).records
        found = [r.asset_observation for r in reversed(list(records))]
        return [{k: v.value for k, v in o.metadata.items()} | {"said": o.description} for o in found if o]

    def query(self, statement: str) -> list[tuple[Any, ...]]:
        with PostgresDatabase().connect() as session, session.cursor() as cursor:
            cursor.execute(statement, (f"{self.layer}/daily",))
            return cursor.fetchall() if cursor.description else []


def moments(keys: Sequence[str]) -> pa.Array:
    return pa.array([datetime.strptime(k, HOURS.fmt).replace(tzinfo=UTC) for k in keys], pa.timestamp("us", "UTC"))


def sums_of(uri: str, version: int | None = None) -> Counter[str]:
    """The sum of all rows by day, as of a version."""
    table = DeltaTable(uri, version=version).to_pyarrow_table()
    days = pc.strftime(table["hour"], format="%Y-%m-%d").to_pylist()
    sums: Counter[str] = Counter()
    for key, value in zip(days, table["value"].to_pylist(), strict=True):
        sums[key] += value
    return sums


def partitions(request: dg.RunRequest) -> list[str]:
    if request.partition_key:
        return [request.partition_key]
    first, last = (request.tags[f"dagster/asset_partition_range_{end}"] for end in ("start", "end"))
    return [key for key in DAYS.get_partition_keys() if first <= key <= last]


@pytest.fixture
def world(at_home: LocalServices, tmp_path: Path) -> Iterator[World]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield from begun(World(tmp_path / "lake", instance))


@pytest.fixture
def lasting_world(at_home: LocalServices, tmp_path: Path) -> Iterator[World]:
    """Its instance can be used by several threads and processes."""
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        yield from begun(World(tmp_path / "lake", instance))


def begun(world: World) -> Iterator[World]:
    """Five days have landed and were processed once."""
    world.land(*(hour(n) for n in DAYS_BY_NUMBER))
    assert world._execute([world.daily], None, range_tags(day(DAYS_BY_NUMBER[0]), day(DAYS_BY_NUMBER[-1])))
    yield world
    world.query("DELETE FROM late_data.partitions WHERE consumer LIKE replace(%s, 'daily', '%%')")


def test_rows_that_came_in_another_hour_ask_for_exactly_the_days_that_they_belong_to(world: World) -> None:
    assert world.settle("apart") == []
    world.land_late(hour(5), of=[hour(2), hour(4)])
    world.land(hour(4), value=5)
    first = world.tick("apart")
    assert sorted(partitions(r) for r in first.run_requests or []) == [[day(2)], [day(4)]], (
        "what both ask for is one run"
    )
    world.launch(first)
    assert world.settle("apart") == []
    assert {number: world.results["daily", day(number)] for number in DAYS_BY_NUMBER} == {1: 1, 2: 2, 3: 1, 4: 7, 5: 1}


def test_exactly_the_changed_days_run_again_each_once(world: World) -> None:
    assert world.settle() == []
    world.land(hour(2), hour(2, 23), hour(4, 0))
    world.land(hour(3), value=5)
    first = world.tick()
    assert [partitions(r) for r in first.run_requests or []] == [[day(2), day(3), day(4)]], "days in a row are one run"
    (request,) = first.run_requests or []
    assert request.tags["late/versions"] == "0..2"
    assert isinstance(world.tick(), dg.SensorResult)
    assert world.tick().run_requests == [], "claimed, and not requested a second time"
    world.launch(first)
    assert world.settle() == []
    assert {key: value for (name, key), value in world.results.items() if name == "daily"} == sums_of(world.uri)


def test_what_the_days_were_not_asked_for_is_told_where_people_look(world: World) -> None:
    world.tick()
    world.land(hour(1), hour(2), hour(4))
    world.present += timedelta(hours=25)
    assert world.settle() == [[day(4)]], "older than four days is refused"
    (told,) = world.news()
    assert told["said"] == f"{world.layer}/daily: 1 requested, 2 too old"
    assert (told["late/requested"], told["late/refused"], told["late/waiting"]) == (1, 2, 0)
    assert "| 2024-01-02 | too old (version 1) | 1 | WRITE |" in told["late/news"]
    world.tick()
    assert len(world.news()) == 1, "the same news are told once"

    world.run("daily", day(2))
    world.land(hour(1))
    assert world.settle() == []
    assert world.news()[-1]["said"] == f"{world.layer}/daily: 1 too old", "a person ran one; the other changed again"


def test_compaction_triggers_nothing(world: World) -> None:
    world.land(*(hour(n) for n in DAYS_BY_NUMBER))
    world.settle()
    DeltaTable(world.uri).optimize.compact()
    result = world.tick()
    assert isinstance(result, dg.SensorResult)
    assert result.run_requests == []
    assert "source at version 2): 5 up to date" in str(result.skip_reason)


def test_the_current_day_does_not_select_itself(world: World) -> None:
    world.present = datetime(2024, 1, 5, 23, tzinfo=UTC)
    world.land(hour(5), hour(4))
    assert world.settle() == [[day(4)]]
    world.present = datetime(2024, 1, 6, tzinfo=UTC)
    assert world.settle() == [[day(5)]], "when it is over, what came after its run counts"


def test_what_lands_while_a_day_is_processed_is_not_taken_for_processed(world: World) -> None:
    world.land(hour(3))
    result, later = world.tick(), iter([hour(3, 4)])
    world.meanwhile = lambda: [world.land(key) for key in later]
    world.launch(result)
    assert world.results["daily", day(3)] == 2, "the third row came too late for this run"
    assert world.settle() == [[day(3)]]
    assert world.results["daily", day(3)] == sums_of(world.uri)[day(3)] == 3


def test_a_stateful_dataset_runs_the_changed_day_and_all_after_it_one_by_one(world: World) -> None:
    assert all(world.run("total", day(n)) for n in DAYS_BY_NUMBER)
    world.land(hour(3), value=10)
    assert world.settle("total") == [[day(3)], [day(4)], [day(5)]]
    world.land(hour(4), hour(5), value=100)
    assert world.settle("total") == [[day(4)], [day(5)]]
    world.land(hour(2, 20), value=7)  # of which nothing had come when its day was done
    assert world.settle("total") == [[day(2)], [day(3)], [day(4)], [day(5)]]
    sums = sums_of(world.uri)
    for n in DAYS_BY_NUMBER:
        assert world.results["total", day(n)] == sum(sums[day(m)] for m in range(1, n + 1))


def test_a_day_that_a_person_or_the_cascade_is_running_is_left_to_them(world: World) -> None:
    world.land(hour(3))
    own = world.instance.create_run_for_job(
        world.job, asset_selection=frozenset({world.daily}), tags={"dagster/partition": day(3)}
    )
    assert world.settle() == []
    world.instance.report_run_canceled(own)
    assert world.settle() == [[day(3)]]


def test_a_day_with_a_failed_gate_is_held_back_and_follows_when_it_is_mended(world: World) -> None:
    def judged(passed: bool) -> None:
        wanted = dg.AssetRecordsFilter(asset_key=world.visits, asset_partitions=[hour(3)])
        at = world.instance.fetch_materializations(wanted, limit=1).records[0]
        target = Target(storage_id=at.storage_id, run_id=at.run_id, timestamp=at.timestamp)
        evaluation = dg.AssetCheckEvaluation(
            asset_key=world.visits,
            check_name="good",
            passed=passed,
            metadata={},
            partition=hour(3),
            blocking=True,
            target_materialization_data=target,
        )
        event = dg.DagsterEvent("ASSET_CHECK_EVALUATION", job_name="gate", event_specific_data=evaluation)
        world.instance.report_dagster_event(event, run_id=uuid4().hex)

    world.land(hour(3), hour(4))
    world.instance.report_runless_asset_event(dg.AssetMaterialization(world.visits, partition=hour(3)))
    judged(passed=False)
    assert world.settle() == [[day(4)]]
    assert "held back by its source" in world.news()[0]["said"]
    judged(passed=True)
    assert world.settle() == [[day(3)]]


def test_a_run_that_fails_is_tried_again_and_then_people_are_told(world: World) -> None:
    world.land(hour(3))
    world.broken = True
    assert world.settle() == [[day(3)], [day(3)]]
    assert world.news()[-1]["said"] == f"{world.layer}/daily: 1 given up"
    world.broken = False
    assert world.settle() == [], "nothing has changed"
    world.land(hour(3))
    assert world.settle() == [[day(3)]]


@pytest.mark.faults
def test_of_eight_evaluations_at_once_each_day_is_claimed_by_one(lasting_world: World) -> None:
    world = lasting_world
    world.tick()
    # Not in a row, so that each is a run of its own; a claim of one must not keep the others from theirs.
    world.land(hour(3), hour(5))
    start = Barrier(8)

    def evaluate(_: int) -> list[list[str]]:
        start.wait(PATIENCE)
        found = world.tick()
        return [partitions(r) for r in found.run_requests or []] if isinstance(found, dg.SensorResult) else []

    with ThreadPoolExecutor(8) as pool:
        claimed = [key for found in pool.map(evaluate, range(8)) for keys in found for key in keys]
    assert sorted(claimed) == [day(3), day(5)]
    names = world.query("SELECT claim FROM late_data.partitions WHERE consumer = %s AND claim IS NOT NULL")
    assert len(set(names)) == 2


def tick(root: str, layer: str) -> None:
    """In a process of its own."""
    with dg.DagsterInstance.local_temp(root) as instance:
        World(Path(root) / "lake", instance, layer=layer).tick()


@pytest.mark.faults
def test_kill_9_between_claim_and_launch_delays_the_day_and_does_not_lose_it(
    lasting_world: World, tmp_path: Path
) -> None:
    world = lasting_world
    world.land(hour(3))
    died = f"after_commit:{world.layer}/daily"
    warm_process.dies("test_late_data:tick", str(tmp_path), world.layer, DE_KILL_AT=died)
    ((claim,),) = world.query("SELECT claim FROM late_data.partitions WHERE consumer = %s AND claim IS NOT NULL")

    assert world.settle() == [], "its run may still come"
    world.forward = LEASE + timedelta(seconds=1)
    start = Barrier(4)

    def evaluate(_: int) -> dg.SensorResult | dg.SkipReason:
        start.wait(PATIENCE)
        return world.tick()

    with ThreadPoolExecutor(4) as pool:
        found = [r for r in pool.map(evaluate, range(4)) if isinstance(r, dg.SensorResult) and r.run_requests]
    (only,) = found
    (request,) = only.run_requests or []
    assert (request.run_key, request.tags[CLAIM_TAG]) == (claim, claim), "so that its run cannot start twice"
    assert world.launch(only) == [[day(3)]]
    assert world.settle() == []


def test_a_claim_whose_run_waits_in_the_queue_is_not_taken_over(world: World) -> None:
    world.land(hour(3))
    (request,) = world.tick().run_requests or []  # type: ignore[union-attr]
    tags = {**request.tags, "dagster/partition": day(3)}
    world.instance.create_run_for_job(world.job, asset_selection=frozenset({world.daily}), tags=tags)
    world.forward = 5 * LEASE
    assert world.tick().run_requests == []  # type: ignore[union-attr]


def test_where_the_log_was_cleaned_what_may_have_changed_runs_again(world: World) -> None:
    world.tick()
    world.land(hour(3), hour(4))
    world.land(hour(4))
    DeltaTable(world.uri).create_checkpoint()
    for version in (0, 1):
        (Path(world.uri) / "_delta_log" / f"{version:020}.json").unlink()
    world.present += timedelta(hours=1)
    assert world.settle() == [[day(2), day(3), day(4), day(5)]]
    (told,) = world.news()
    assert "| 2024-01-02 | requested (version 1) | 1 | UNKNOWN: THE LOG IS GONE |" in told["late/news"]
    assert told["said"] == f"{world.layer}/daily: 4 requested, 1 too old"


def test_a_source_that_is_made_anew_starts_from_nothing(world: World) -> None:
    for _ in range(3):
        world.land(hour(3))
    world.settle()
    DeltaTable(world.uri).vacuum()
    for path in sorted(Path(world.uri).rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    world.land(hour(4), value=7)
    assert world.settle() == [[day(4)]]
    assert world.results["daily", day(4)] == 7


def test_without_the_database_the_sensor_says_what_to_start(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("DE_HOME", str(tmp_path / "nowhere"))
        found = world.tick()
    assert isinstance(found, dg.SkipReason)
    assert "de up postgres" in str(found.skip_message)
