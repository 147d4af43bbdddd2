"""What waits for a branch of a split that told of itself goes on: its checks, and what reads it, in the same run."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

import dagster as dg
import pytest
from instances import silent_instance
from pyspark.sql import DataFrame

from de_checks.sla import step_duration_check
from de_resources.parallel_split import Branch, split

pytestmark = pytest.mark.pattern("parallel_split")

FILE, TABLE, READER = dg.AssetKey("file"), dg.AssetKey("table"), dg.AssetKey("reader")
DAYS = dg.DailyPartitionsDefinition("2026-01-01", end_date="2026-01-03")
DAY = "2026-01-01"


class Rows:
    """Rows that nobody looks at."""

    def persist(self) -> "Rows":
        return self

    def unpersist(self) -> None:
        pass


def written(_rows: DataFrame) -> Mapping[str | None, Branch]:
    return {DAY: Branch({"rows": 1})}


def broken(_rows: DataFrame) -> Mapping[str | None, Branch]:
    raise OSError("the disk is away")


def run(
    beside: Callable[[DataFrame], Mapping[str | None, Branch]], *chosen: dg.AssetKey, type_: Any = dg.Nothing
) -> dg.ExecuteInProcessResult:
    """A day by both branches, what reads the one beside, and the checks of all."""

    @dg.multi_asset(
        outs={
            "file": dg.AssetOut(dagster_type=type_, is_required=False),
            "table": dg.AssetOut(is_required=False),
        },
        partitions_def=DAYS,
        can_subset=True,
    )
    def both(context: dg.AssetExecutionContext) -> Iterator[dg.Output[Any]]:
        rows = cast("DataFrame", Rows())
        yield from split(context, rows, stored={"table": lambda _: cast("DataFrame", 7)}, beside={"file": beside})

    @dg.asset(deps=[FILE], partitions_def=DAYS)
    def reader() -> None: ...

    checks = [step_duration_check(both.get_asset_spec(key)) for key in (FILE, TABLE)]
    job = dg.Definitions(
        [both, reader],
        asset_checks=checks,
        jobs=[dg.define_asset_job("all", dg.AssetSelection.assets(*chosen))],
        executor=dg.in_process_executor,
        resources={"io_manager": dg.InMemoryIOManager()},
    ).resolve_job_def("all")
    with silent_instance() as instance:
        return job.execute_in_process(partition_key=DAY, instance=instance, raise_on_error=False)


def told(done: dg.ExecuteInProcessResult) -> list[tuple[dg.AssetKey, str | None]]:
    events = [event.step_materialization_data.materialization for event in done.get_asset_materialization_events()]
    return sorted((each.asset_key, each.partition) for each in events)


@pytest.mark.parametrize("chosen", [(FILE, TABLE, READER), (FILE, READER)], ids=["both", "alone"])
def test_what_waits_for_a_branch_that_told_of_itself_is_run(chosen: tuple[dg.AssetKey, ...]) -> None:
    done = run(written, *chosen)
    assert done.success
    assert told(done) == [(key, DAY) for key in sorted(chosen)], "and nothing is told twice"
    judged = {e.asset_key: e.passed for e in done.get_asset_check_evaluations()}
    assert judged == {key: True for key in chosen if key != READER}
    skipped = [event.step_key for event in done.all_events if event.is_step_skipped]
    assert skipped == []


def test_what_waits_for_a_branch_that_failed_is_not_run() -> None:
    done = run(broken, FILE, TABLE, READER)
    assert not done.success
    assert told(done) == [(TABLE, DAY)]
    assert done.get_asset_check_evaluations() == []


def test_what_was_not_asked_for_is_not_told_of() -> None:
    done = run(written, TABLE)
    assert told(done) == [(TABLE, DAY)]
    assert [e.asset_key for e in done.get_asset_check_evaluations()] == [TABLE]


def test_an_output_that_would_be_stored_as_well_is_refused_by_name() -> None:
    done = run(written, FILE, TABLE, type_=dg.Int)
    (failed,) = done.get_step_failure_events()
    assert "The branch `file` writes by itself" in str(failed.step_failure_data.error)
    assert told(done) == []
