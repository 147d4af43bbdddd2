"""What is written beside a step's outputs is told once, and what waits for it goes on: its checks are executed."""

from collections.abc import Iterator
from typing import Any

import dagster as dg
import pytest

from de_resources.parallel_split import Branch, split

pytestmark = pytest.mark.pattern("parallel_split")

DAYS = dg.DailyPartitionsDefinition("2024-10-10", end_date="2024-10-12")
FIRST, SECOND = DAYS.get_partition_keys()
FILES, LETTERS = dg.AssetKey("files"), dg.AssetKey("letters")


class Away(Exception):
    """Where letters go."""


@pytest.mark.parametrize("chosen", [FILES, LETTERS], ids=["written", "failed"])
def test_the_check_of_a_branch_that_tells_of_itself_is_executed_once_it_has_written(chosen: dg.AssetKey) -> None:
    def write(_rows: Any) -> dict[str | None, Branch]:
        return {key: Branch({"size": len(key)}, f"version of {key}") for key in (FIRST, SECOND)}

    def fail(_rows: Any) -> dict[str | None, Branch]:
        raise Away

    out = dg.AssetOut(dagster_type=dg.Nothing, is_required=False)

    @dg.multi_asset(
        outs={"files": out, "letters": out},
        partitions_def=DAYS,
        can_subset=True,
        backfill_policy=dg.BackfillPolicy.single_run(),
    )
    def branches(context: dg.AssetExecutionContext) -> Iterator[dg.Output[Any]]:
        # Of a single branch the rows are handed on as they are.
        rows: Any = None
        yield from split(context, rows, stored={}, beside={"files": write, "letters": fail})

    @dg.asset_check(asset=chosen)
    def looked_at() -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=True)

    job = dg.define_asset_job("job", dg.AssetSelection.assets(chosen))
    defs = dg.Definitions([branches], asset_checks=[looked_at], jobs=[job])
    tags = {"dagster/asset_partition_range_start": FIRST, "dagster/asset_partition_range_end": SECOND}
    with dg.DagsterInstance.ephemeral() as instance:
        done = defs.resolve_job_def("job").execute_in_process(instance=instance, tags=tags, raise_on_error=False)
        records = instance.fetch_materializations(chosen, limit=10, ascending=True).records
        told = {record.partition_key: record.asset_materialization for record in records}
    if chosen == LETTERS:
        assert (done.success, records, done.get_asset_check_evaluations()) == (False, [], [])
        return
    assert done.success
    assert [record.partition_key for record in records] == [FIRST, SECOND], "once each"
    assert {key: each.tags["dagster/data_version"] for key, each in told.items() if each and each.tags} == {
        key: f"version of {key}" for key in (FIRST, SECOND)
    }
    assert [each.check_name for each in done.get_asset_check_evaluations()] == ["looked_at"]
