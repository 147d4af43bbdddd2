"""Dagster's own queue with turns and pools, on a real instance with real workers: order, holds, limits, and who lets go."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.execution.submit_asset_runs import submit_asset_run
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import PythonFileTarget
from dagster._daemon.monitoring.run_monitoring import execute_run_monitoring_iteration
from dagster._daemon.run_coordinator.queued_run_coordinator_daemon import QueuedRunCoordinatorDaemon
from waiting import PATIENCE

from de_resources.launcher.worker import Worker
from de_resources.run_queue.coordinator import LimitsElsewhere
from de_resources.run_queue.failures import RELEASED
from de_resources.run_queue.latency import SECONDS
from de_resources.run_queue.passing import NoReason, NothingFailed, let_pass
from de_resources.run_queue.places import WAITS_FOR, SeveralPipelines
from de_resources.run_queue.pools import PoolWithoutLimit

pytestmark = pytest.mark.faults

INSTANCE = """
telemetry: {enabled: false}
run_launcher: {module: de_resources.launcher, class: ForkingRunLauncher}
run_monitoring: {enabled: true}
run_coordinator:
  module: de_resources.run_queue.coordinator
  class: QueueWithTurns
  config: {settle_seconds: 0.0, pools: {landing: 2}}
concurrency: {runs: {max_concurrent_runs: 4}}
"""
LINE = dg.AssetKey("line")


class Queue:
    """An instance, a code location in a folder of its own, and the daemon's look into the queue, done by hand."""

    def __init__(self, home: Path) -> None:
        self.folder, instance = home / "code", home / "dagster"
        self.folder.mkdir()
        instance.mkdir()
        code = self.folder / "ordered_location.py"
        shutil.copy(Path(__file__).with_name("ordered_location.py"), code)
        (instance / "dagster.yaml").write_text(INSTANCE)
        self.instance = dg.DagsterInstance.from_config(str(instance))
        target = PythonFileTarget(
            str(code), attribute=None, working_directory=str(self.folder), location_name="ordered"
        )
        self.context = WorkspaceProcessContext(self.instance, target)
        self.daemon = QueuedRunCoordinatorDaemon(interval_seconds=1)

    def launch(self, *assets: str, **tags: str) -> str:
        """What automation does: a run is made and queued."""
        run = submit_asset_run(
            run_id=None,
            run_request=dg.RunRequest(asset_selection=[dg.AssetKey(name) for name in assets], tags=tags),
            run_request_index=0,
            instance=self.instance,
            workspace_process_context=self.context,
            workspace=self.context.create_request_context(),
            run_request_execution_data_cache={},
            debug_crash_flags={},
            logger=logging.getLogger(__name__),
        )
        return asyncio.run(run).run_id

    def day(self, number: int, *assets: str) -> str:
        return self.launch(*(assets or ("line",)), **{"dagster/partition": f"2026-01-{number:02d}"})

    def days(self, first: int, last: int) -> str:
        tags = ("dagster/asset_partition_range_start", "dagster/asset_partition_range_end")
        return self.launch("line", **{tag: f"2026-01-{day:02d}" for tag, day in zip(tags, (first, last), strict=True)})

    def look(self) -> None:
        list(self.daemon.run_iteration(self.context))

    def until(self, condition: Callable[[], object]) -> None:
        """Look into the queue, as the daemon does, until something is so."""
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline, self.told()
            self.look()
            time.sleep(0.2)  # a look costs a twentieth of a second of CPU

    def ends(self, *runs: str) -> list[str]:
        self.until(lambda: all(self.run(run).is_finished for run in runs))
        return [self.run(run).status.value for run in runs]

    def run(self, run: str) -> dg.DagsterRun:
        found = self.instance.get_run_by_id(run)
        assert found is not None
        return found

    def waits_for(self, run: str) -> str:
        """What people read at a run after some looks that change nothing."""
        for _ in range(3):
            self.look()
        assert self.run(run).status == dg.DagsterRunStatus.QUEUED
        return self.run(run).tags[WAITS_FOR]

    def waits_for_nothing(self, runs: Sequence[str]) -> None:
        """They stay in the queue through some looks, and no turn is what they wait for."""
        for _ in range(3):
            self.look()
        assert {self.run(run).status for run in runs} == {dg.DagsterRunStatus.QUEUED}
        assert not any(WAITS_FOR in self.run(run).tags for run in runs)

    def forgets(self) -> None:
        """As a new daemon does, which has looked at nothing yet."""
        assert isinstance(self.instance.run_coordinator, dg.QueuedRunCoordinator)
        self.instance.run_coordinator._failures = None

    def monitor(self) -> None:
        """One look of the daemon that monitors runs."""
        list(execute_run_monitoring_iteration(self.context, logging.getLogger(__name__)))

    def told(self) -> list[str]:
        return (self.folder / "told").read_text().split("\n")[:-1] if (self.folder / "told").exists() else []

    def let_pass(self, number: int, reason: str) -> str:
        return let_pass(self.instance, ["line"], "line", f"2026-01-{number:02d}", reason)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Queue]:
    queue = Queue(tmp_path_factory.mktemp("queue"))
    with queue.instance, queue.context:
        yield queue


@pytest.fixture
def queue(world: Queue) -> Iterator[Queue]:
    """An empty queue, in which nothing has failed yet."""
    for file in ("told", *(path.name for path in world.folder.glob("*-[0-9][0-9]"))):
        (world.folder / file).unlink(missing_ok=True)
    yield world
    for record in world.instance.get_run_records():
        world.instance.delete_run(record.dagster_run.run_id)
    world.forgets()


@pytest.mark.pattern("single_runner")
def test_days_three_one_two_launched_at_once_are_computed_one_two_three(queue: Queue) -> None:
    runs = [queue.day(number) for number in (3, 1, 2)]
    assert queue.ends(*runs) == ["SUCCESS"] * 3
    assert queue.told() == ["begin 01", "end 01", "begin 02", "end 02", "begin 03", "end 03"], (
        "in order, no two at once"
    )
    waited = queue.instance.get_latest_materialization_event(LINE).asset_materialization.metadata[SECONDS].value
    record = queue.instance.get_run_record_by_id(runs[0])
    assert waited == pytest.approx(record.start_time - record.create_timestamp.timestamp(), abs=0.1)
    assert waited > 0


@pytest.mark.pattern("single_runner")
def test_a_failed_day_holds_the_next_ones_and_nobody_else(queue: Queue) -> None:
    (queue.folder / "fails-02").touch()
    two, four, beside = queue.day(2), queue.days(4, 6), queue.day(4, "beside")
    assert queue.ends(two, beside) == ["FAILURE", "SUCCESS"], "what is beside the pipeline goes on"
    assert queue.waits_for(four).startswith(f"2026-01-02, which failed (run {two[:8]})")
    assert "de let-pass line 2026-01-02" in queue.waits_for(four)
    queue.forgets()
    assert queue.waits_for(four).startswith("2026-01-02, which failed"), "a new daemon knows it as well"

    before, three = queue.day(1), queue.day(3)
    assert queue.instance.run_coordinator.cancel_run(three)
    assert queue.ends(before) == ["SUCCESS"], "what is before the failure does not wait for it"
    (queue.folder / "fails-02").unlink()
    again = queue.day(2)
    assert queue.ends(again, four) == ["SUCCESS"] * 2, "what was taken from the queue holds nobody"
    assert [word for word in queue.told() if word.startswith("begin")][-2:] == ["begin 02", "begin 04"]


@pytest.mark.pattern("single_runner")
def test_a_range_that_failed_is_repaired_day_by_day(queue: Queue) -> None:
    (queue.folder / "fails-04").touch()
    together, seven = queue.days(4, 6), queue.day(7)
    assert queue.ends(together) == ["FAILURE"]
    assert queue.waits_for(seven).startswith("2026-01-04 to 2026-01-06, which failed")
    (queue.folder / "fails-04").unlink()
    five = queue.day(5)
    assert queue.waits_for(five).startswith("2026-01-04 to 2026-01-06, which failed"), "the day before it is missing"
    assert queue.ends(queue.day(4), five) == ["SUCCESS"] * 2
    assert queue.waits_for(seven).startswith(f"2026-01-06, which failed (run {together[:8]})")
    assert queue.ends(queue.day(6), seven) == ["SUCCESS"] * 2
    assert [word for word in queue.told() if word.startswith("end")] == ["end 04", "end 05", "end 06", "end 07"]


@pytest.mark.pattern("single_runner")
def test_a_day_that_a_check_refused_holds_too_and_a_failure_beside_it_does_not(queue: Queue) -> None:
    (queue.folder / "red-02").touch()
    (queue.folder / "beside-fails-01").touch()
    assert queue.ends(queue.day(1, "line", "beside")) == ["FAILURE"]
    two, three = queue.day(2), queue.day(3)
    assert queue.ends(two) == ["FAILURE"], "the day before is there: only what is beside it failed"
    assert queue.waits_for(three).startswith(f"2026-01-02, which failed (run {two[:8]})")
    (queue.folder / "red-02").unlink()
    (queue.folder / "check-breaks-02").touch()
    again = queue.day(2)
    assert queue.ends(again) == ["FAILURE"], "a check that came to no verdict holds as well"
    assert queue.waits_for(three).startswith(f"2026-01-02, which failed (run {again[:8]})")
    assert "begin 03" not in queue.told()


@pytest.mark.pattern("single_runner", "aligned_fan_in")
def test_behind_a_red_gate_the_sibling_goes_on_and_the_next_days_wait(queue: Queue) -> None:
    (queue.folder / "unique-02").touch()
    two = queue.day(2, "counted", "summed", "sketched")
    assert queue.ends(two) == ["FAILURE"]
    assert queue.told() == ["counted 02", "sketched 02"], "the sum needs what is red, and the sketch does not"
    assert queue.waits_for(queue.day(3, "counted")).startswith(f"2026-01-02, which failed (run {two[:8]})")
    (queue.folder / "unique-02").unlink()
    again = queue.day(2, "counted", "summed", "sketched")
    queue.until(lambda: "counted 03" in queue.told())
    assert queue.ends(again) == ["SUCCESS"]
    assert [each for each in queue.told() if each.startswith("summed")] == ["summed 02"]


@pytest.mark.pattern("single_runner", "aligned_fan_in")
def test_the_next_days_wait_also_where_the_run_ended_well(queue: Queue) -> None:
    (queue.folder / "unique-02").touch()
    two = queue.day(2, "counted", "sketched")
    assert queue.ends(two) == ["SUCCESS"]
    three = queue.day(3, "counted")
    assert queue.waits_for(three).startswith(f"2026-01-02, which did not pass a check (run {two[:8]})")
    let_pass(queue.instance, ["counted"], "counted", "2026-01-02", "a person has looked at it")
    assert queue.ends(three) == ["SUCCESS"]


@pytest.mark.pattern("single_runner")
def test_a_person_lets_the_next_ones_pass_and_the_reason_is_kept(queue: Queue) -> None:
    (queue.folder / "fails-02").touch()
    two, three = queue.day(2), queue.day(3)
    assert queue.ends(two) == ["FAILURE"]
    assert "failed" in queue.waits_for(three)
    with pytest.raises(NothingFailed, match="hold others: line 2026-01-02"):
        queue.let_pass(1, "another day")
    with pytest.raises(NoReason):
        queue.let_pass(2, " ")
    queue.let_pass(2, "the source of that day is lost")
    assert queue.ends(three) == ["SUCCESS"]
    (told,) = queue.instance.fetch_observations(dg.AssetRecordsFilter(LINE, asset_partitions=["2026-01-02"]), 9).records
    assert told.asset_observation.metadata[RELEASED].value == "the source of that day is lost"
    assert queue.ends(queue.day(2)) == ["FAILURE"]
    assert "failed" in queue.waits_for(queue.day(4)), "what failed after it is another failure"


@pytest.mark.pattern("single_runner")
def test_a_day_computed_elsewhere_is_made_good(queue: Queue) -> None:
    (queue.folder / "fails-02").touch()
    two, three = queue.day(2), queue.day(3)
    assert queue.ends(two) == ["FAILURE"]
    assert "failed" in queue.waits_for(three)
    queue.instance.report_runless_asset_event(dg.AssetMaterialization(LINE, partition="2026-01-02"))
    assert queue.ends(three) == ["SUCCESS"]


@pytest.mark.pattern("single_runner")
def test_a_run_of_two_pipelines_is_refused_and_one_without_partitions_goes(queue: Queue) -> None:
    with pytest.raises(SeveralPipelines, match="line, other"):
        queue.launch("line", "whole", **{"dagster/partition": "2026-01-01"})
    assert queue.ends(queue.launch("whole"), queue.launch("whole")) == ["SUCCESS"] * 2


@pytest.mark.pattern("concurrent_runner")
def test_as_many_hours_load_at_once_as_the_pool_takes_and_a_slow_one_blocks_nobody(queue: Queue) -> None:
    """One was launched by a backfill, one by a click on two assets, the others by automation: the limit is of them all."""
    runs = [
        queue.day(1, "landed"),
        queue.launch("landed", **{"dagster/partition": "2026-01-02", "dagster/backfill": "abc"}),
        queue.day(3, "landed", "beside"),
        queue.day(4, "landed"),
    ]
    queue.until(lambda: len(queue.told()) == 2)
    queue.waits_for_nothing(runs[2:])
    assert sorted(queue.told()) == ["landing 01", "landing 02"], "two, and no third one"
    for day in (2, 3, 4):
        (queue.folder / f"go-{day:02d}").touch()
    assert queue.ends(*runs[1:]) == ["SUCCESS"] * 3, "the first day is slow: the others go past it, one by one"
    assert queue.told()[-1] != "landed 01"
    (queue.folder / "go-01").touch()
    assert queue.ends(runs[0]) == ["SUCCESS"]
    under_way, most = 0, 0
    for word in queue.told():
        under_way += word.startswith("landing") - word.startswith("landed")
        most = max(most, under_way)
    assert most == 2


@pytest.mark.pattern("concurrent_runner")
def test_a_dead_worker_leaves_its_place_in_the_pool(queue: Queue) -> None:
    runs = [queue.day(day, "landed") for day in (1, 2, 3)]
    queue.until(lambda: len(queue.told()) == 2)
    for run in runs[:2]:
        worker = Worker.of(queue.run(run))
        assert worker is not None
        os.kill(worker.pid, signal.SIGKILL)
    (queue.folder / "go-03").touch()
    queue.until(lambda: queue.run(runs[2]).is_finished or queue.monitor())
    assert [queue.run(run).status.value for run in runs] == ["FAILURE", "FAILURE", "SUCCESS"]


@pytest.mark.pattern("concurrent_runner")
def test_a_pool_that_nobody_limits_is_refused(queue: Queue) -> None:
    with pytest.raises(PoolWithoutLimit, match=r"'elsewhere'.* known: landing"):
        queue.launch("nowhere")


@pytest.mark.pattern("single_runner")
def test_limits_that_would_replace_the_turns_are_refused(tmp_path: Path) -> None:
    limits = "concurrency: {runs: {max_concurrent_runs: 4, tag_concurrency_limits: [{key: a, limit: 1}]}}"
    (tmp_path / "dagster.yaml").write_text(INSTANCE[: INSTANCE.index("concurrency")] + limits)
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance, pytest.raises(LimitsElsewhere):
        instance.get_concurrency_config()
