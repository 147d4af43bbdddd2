"""`serving/page_counts` by real runs: one writer for each side of the cut-over, the other one shown as skipped."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from dagster._core.definitions.job_base import InMemoryJob
from dagster._core.execution.api import create_execution_plan, execute_run
from dagster._core.execution.plan.state import KnownExecutionState
from dagster_delta import LocalConfig
from deltalake import write_deltalake
from instances import silent_instance

from de_assets.contracts.page_counts import CUT_OVER
from de_assets.filling.execution import reason
from de_assets.partitions import daily, hourly
from de_assets.ranges import range_tags
from de_assets.serving.page_counts import KEY, SOURCE, checks, page_counts
from de_resources.csv_files import CsvLake
from de_resources.delta.io_manager import SparkDeltaIOManager
from de_resources.delta.write.crash_points import at
from de_resources.errors import PermanentError
from de_resources.lake import Lake
from de_resources.lineage.recorded import lineage_of
from de_resources.spark import SparkEngine

pytestmark = pytest.mark.pattern("exclusive_choice")

OLD, NEW, NEXT = daily.get_partition_keys()[:3]
START = daily.time_window_for_partition_key(OLD).start
GRAPH = "serving__page_counts"
ALL = dg.AssetSelection.assets(KEY)
SKIPPED, DONE, FAILED = "SKIPPED", "SUCCESS", "FAILURE"
SCHEMA = pa.schema(
    {
        **dict.fromkeys(("visit_id", "user_id", "page"), pa.string()),
        "is_bot": pa.bool_(),
        "event_hour": pa.timestamp("us", tz="UTC"),
    }
)
VIEWS = [
    # hours after the start of the first day, visitor, page, robot
    *((1, "a", "/x", False), (2, "a", "/x", True), (23, "b", "/y", False)),
    *((24, "a", "/x", False), (25, "b", "/x", True), (26, "b", "/x", True), (47, "c", 'a "b", c', None)),
    *((50, "a", "/y", False), (51, "a", "/y", False)),
]
BY_HAND = {
    OLD: [{"page": "/x", "views": "2"}, {"page": "/y", "views": "1"}],
    NEW: [
        {"page": "/x", "views": "3", "visitors": "2", "bot_views": "2"},
        {"page": 'a "b", c', "views": "1", "visitors": "1", "bot_views": "0"},
    ],
    NEXT: [{"page": "/y", "views": "2", "visitors": "1", "bot_views": "0"}],
}
"""What the files of the three days say, by Python's own reader."""


class Broken(PermanentError):
    """A writer that fails until somebody mends it."""


@dataclass
class World:
    """Three days of visits, a day before the cut-over and two since, and an instance of their own."""

    engine: SparkEngine
    root: Path
    instance: dg.DagsterInstance

    def land(self, *without: str) -> None:
        """By delta-rs: nobody asks how the source was written."""
        rows = [
            (f"v{n}", who, page, bot, (START + timedelta(hours=hour)).astimezone(UTC))
            for n, (hour, who, page, bot) in enumerate(VIEWS)
        ]
        columns = zip(SCHEMA, zip(*rows, strict=True), strict=True)
        table = pa.table({field.name: pa.array(values, field.type) for field, values in columns})
        write_deltalake(
            str(self.root / "silver" / "visits"),
            table.drop_columns(list(without)),
            partition_by=["event_hour"],
            mode="overwrite",
            schema_mode="overwrite",
        )

    def job(self, only: dg.AssetSelection = ALL) -> dg.JobDefinition:
        storage: dict[str, Any] = {"root_uri": str(self.root), "storage_options": LocalConfig(), "spark": self.engine}
        return dg.Definitions(
            [page_counts, dg.AssetSpec(SOURCE, partitions_def=hourly, metadata={"partition_expr": "event_hour"})],
            asset_checks=checks,
            jobs=[dg.define_asset_job("count", only)],
            resources={
                "io_manager": SparkDeltaIOManager(**storage),
                "lake": Lake(**storage),
                "csv_lake": self.files,
                "facts": dg.FilesystemIOManager(base_dir=str(self.root.parent / "facts")),
            },
            executor=dg.in_process_executor,
        ).resolve_job_def("count")

    @property
    def files(self) -> CsvLake:
        return CsvLake(root_uri=str(self.root), spark=self.engine)

    def run(
        self, first: str | None, last: str | None = None, only: dg.AssetSelection = ALL
    ) -> dg.ExecuteInProcessResult:
        return self.job(only).execute_in_process(
            partition_key=None if last else first,
            tags=range_tags(first, last) if first and last else {},
            instance=self.instance,
            raise_on_error=False,
        )

    def again_from_failure(self, run_id: str) -> str:
        """What the UI calls re-execution from failure; the id of the new run."""
        failed = self.instance.get_run_by_id(run_id)
        assert failed is not None
        steps, state = KnownExecutionState.build_resume_retry_reexecution(self.instance, failed)
        job = self.job()
        plan = create_execution_plan(job, step_keys_to_execute=steps, known_state=state, tags=failed.tags)
        run = self.instance.create_run_for_job(
            job, execution_plan=plan, parent_run_id=run_id, root_run_id=run_id, tags=failed.tags
        )
        assert execute_run(InMemoryJob(job), run, self.instance, raise_on_error=False).success
        return run.run_id

    def steps(self, run_id: str) -> dict[str, str]:
        """The steps of the asset as the run's view shows them."""
        stats = self.instance.get_run_step_stats(run_id)
        of_graph = {s.step_key.removeprefix(f"{GRAPH}."): s for s in stats if s.step_key.startswith(f"{GRAPH}.")}
        return {name: str(s.status.value) for name, s in of_graph.items() if s.status}

    def told(self) -> list[tuple[str, str]]:
        """Materialised days in order, each with its writer."""
        records = self.instance.fetch_materializations(KEY, limit=100).records
        events = [r.asset_materialization for r in records if r.asset_materialization]
        return sorted((str(e.partition), str(e.metadata["writer"].value)) for e in events)

    def arrive(self, without: int) -> str:
        """The instance knows of all hours of the three days but one, whose key is returned."""
        hours = hourly.get_partition_keys()[:72]
        for key in hours[:without] + hours[without + 1 :]:
            self.instance.report_runless_asset_event(dg.AssetMaterialization(SOURCE, partition=key))
        return hours[without]

    def lacks(self) -> dict[str, list[str]]:
        """The hours that the materialised days say that they lack."""
        records = self.instance.fetch_materializations(KEY, limit=100).records
        events = {str(r.partition_key): r.asset_materialization for r in records if r.asset_materialization}
        missing: dict[str, Any] = {day: event.metadata["missing_inputs"].value for day, event in sorted(events.items())}
        return {day: sorted(each) for day, each in missing.items()}

    @property
    def folder(self) -> Path:
        return self.root / "serving" / "page_counts"

    def read(self) -> dict[str, list[dict[str, str]]]:
        """What Python's reader gets of the files."""
        found = {}
        for path in sorted(self.folder.glob("*.csv")):
            with path.open(newline="") as lines:
                found[path.stem] = list(csv.DictReader(lines))
        return found

    def bytes(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in sorted(self.folder.glob("*.csv"))}


def verdicts(done: dg.ExecuteInProcessResult) -> set[tuple[str, str | None, bool]]:
    return {(e.check_name, e.partition, e.passed) for e in done.get_asset_check_evaluations()}


def passed(*days: str) -> set[tuple[str, str | None, bool]]:
    return {(check, day, True) for check in ("rows_meet_contract", "key_is_unique") for day in days}


def refusal(done: dg.ExecuteInProcessResult) -> str:
    (failed,) = [e for e in done.get_step_failure_events() if e.step_key]
    assert failed.step_key == f"{GRAPH}.choose_writer"
    return reason(failed)


@pytest.fixture
def world(engine: SparkEngine, tmp_path: Path) -> Iterator[World]:
    with silent_instance() as instance:
        it = World(engine, tmp_path / "lake", instance)
        it.land()
        yield it


def test_the_cut_over_lies_between_the_days_of_these_tests() -> None:
    assert OLD < CUT_OVER == NEW


def test_of_a_day_one_writer_runs_and_the_other_is_shown_as_skipped(world: World) -> None:
    """Before the cut-over; since then: where a day in the layout of the other side is red."""
    runs_alone(world, OLD, "legacy_writer", "new_writer")


def runs_alone(world: World, day: str, runs: str, waits: str) -> None:
    done = world.run(day)
    assert done.success
    assert world.steps(done.run_id) == {"choose_writer": DONE, runs: DONE, waits: SKIPPED, "written": DONE}
    assert world.read() == {day: BY_HAND[day]}
    assert world.told() == [(day, runs)], "once"
    assert verdicts(done) == passed(day)


def test_a_range_across_the_cut_over_takes_both_each_for_its_side(world: World) -> None:
    missing = world.arrive(without=2)
    done = world.run(OLD, NEXT)
    assert done.success
    assert world.lacks() == {OLD: [missing], NEW: [], NEXT: []}
    assert world.steps(done.run_id) == dict.fromkeys(["choose_writer", "legacy_writer", "new_writer", "written"], DONE)
    assert world.read() == BY_HAND
    assert world.told() == [(OLD, "legacy_writer"), (NEW, "new_writer"), (NEXT, "new_writer")]
    assert verdicts(done) == passed(OLD, NEW, NEXT)
    rows = world.files.table(KEY, page_counts.get_asset_spec(KEY).metadata).read(world.engine.spark_session).collect()
    assert sorted((r.event_date, r.page, r.views, r.visitors, r.bot_views) for r in rows if r.page != "/y") == [
        (date.fromisoformat(OLD), "/x", 2, None, None),
        (date.fromisoformat(NEW), "/x", 3, 2, 2),
        (date.fromisoformat(NEW), 'a "b", c', 1, 1, 0),
    ], "one reader for both layouts"

    tell_where_people_look(done)
    before = world.bytes()
    assert world.run(OLD, NEXT).success
    assert world.bytes() == before, "a rerun leaves the same bytes"


def tell_where_people_look(done: dg.ExecuteInProcessResult) -> None:
    """The choice, in the asset's metadata, in the outputs of the step that chose, and in each materialisation."""
    metadata = page_counts.get_asset_spec(KEY).metadata
    assert metadata["cut_over"] == CUT_OVER
    assert f"| new_writer | since {CUT_OVER}, and the source has `is_bot`, `user_id` |" in metadata["choice"].value
    (event,) = [e for e in done.get_asset_materialization_events() if e.partition == OLD]
    assert event.materialization.metadata["layout"].value == "page, views"
    lineage = lineage_of(event.materialization.metadata)
    assert lineage is not None
    assert {column: {name for _, name in sources} for column, sources in lineage.columns.items()} == {
        "event_date": {"event_hour"},
        "page": {"page"},
        "views": set(),
        "visitors": {"user_id"},
        "bot_views": {"is_bot"},
    }, "of all columns, though the newest day had two"
    chosen = {
        e.step_output_data.output_name: e.step_output_data.metadata["partitions"].value
        for e in done.all_events
        if e.event_type_value == "STEP_OUTPUT" and e.step_key == f"{GRAPH}.choose_writer"
    }
    assert chosen == {"legacy_writer": OLD, "new_writer": f"{NEW} to {NEXT} (2)"}


def test_the_choice_opens_no_file_of_the_data(world: World) -> None:
    """The files of the source are gone. What counts fails; what chooses does not notice, and starts no job of the engine."""
    for file in (world.root / "silver" / "visits").rglob("*.parquet"):
        file.unlink()
    done = world.run(OLD, NEXT)
    assert world.steps(done.run_id) == {"choose_writer": DONE, "legacy_writer": FAILED, "new_writer": FAILED}
    assert world.told() == []
    assert world.read() == {}


def test_a_source_without_the_columns_stops_the_run_before_either_writes(world: World) -> None:
    world.land("is_bot")
    assert f"No branch of `serving/page_counts` is for {NEW}" in refusal(done := world.run(OLD, NEXT))
    assert "`new_writer`: the source has no `is_bot`" in refusal(done)
    assert world.steps(done.run_id) == {"choose_writer": FAILED}
    assert (world.read(), world.told()) == ({}, []), "nor is the day before the cut-over written"


def test_a_source_that_was_never_written_has_no_schema_to_choose_by(engine: SparkEngine, tmp_path: Path) -> None:
    with silent_instance() as instance:
        world = World(engine, tmp_path / "lake", instance)
        assert "SchemaUnknown: " in refusal(world.run(NEW))
        assert not world.root.exists()


def test_a_day_that_does_not_exist_and_a_run_without_a_day_are_refused(world: World) -> None:
    before = (START - timedelta(days=1)).date().isoformat()
    with pytest.raises(dg.DagsterUnknownPartitionError):
        world.run(before)
    assert "NothingToChoose: " in refusal(world.run(None))
    assert world.told() == []


@pytest.mark.parametrize(("broken", "there"), [("legacy_writer", [NEW, NEXT]), ("new_writer", [OLD])])
def test_one_writer_fails_and_the_days_of_the_other_are_there(world: World, broken: str, there: list[str]) -> None:
    bad = {OLD, NEW, NEXT} - {*there}
    with at("before_switch", fails_for(world, bad)):
        done = world.run(OLD, NEXT)
    assert not done.success
    other = ({"legacy_writer", "new_writer"} - {broken}).pop()
    assert world.steps(done.run_id) == {"choose_writer": DONE, broken: FAILED, other: DONE}, "red is what failed"
    assert [day for day, _ in world.told()] == there
    assert world.read() == {day: BY_HAND[day] for day in there}

    again = world.again_from_failure(done.run_id)
    assert world.steps(again) == {broken: DONE, "written": DONE}, "neither the choice nor the other writer is repeated"
    assert [day for day, _ in world.told()] == [OLD, NEW, NEXT], "each once"
    assert world.read() == BY_HAND
    judged = world.instance.all_logs(again, of_type=dg.DagsterEventType.ASSET_CHECK_EVALUATION)
    assert {e.dagster_event.asset_check_evaluation_data.partition for e in judged if e.dagster_event} == {*BY_HAND}


def fails_for(world: World, days: set[str]) -> Callable[[str], None]:
    """The writer of these days finds no room, when its files are complete and have no name yet."""

    def fail(_: str) -> None:
        staged = {path.name.partition("=")[2] for path in world.folder.glob(".incoming-*/day=*")}
        if staged & days:
            raise Broken("no room")

    return fail


@pytest.mark.red_check("rows_meet_contract")
def test_a_day_in_the_layout_of_the_other_side_is_red(world: World) -> None:
    """As after a cut-over that was moved, and a day between that nobody materialised again."""
    runs_alone(world, NEW, "new_writer", "legacy_writer")
    old = world.folder / f"{NEW}.csv"
    old.write_text('"page","views"\n"/x",3\n')
    done = world.run(NEW, NEW, dg.AssetSelection.checks_for_assets(KEY))
    (red,) = [e for e in done.get_asset_check_evaluations() if not e.passed]
    assert (red.check_name, red.partition) == ("rows_meet_contract", NEW)
    assert red.metadata["violations"].value == {"layout_is_that_of_its_side": 1}
    assert world.run(NEW).success, "materialised again it has its side's layout"
    assert world.read() == {NEW: BY_HAND[NEW]}
