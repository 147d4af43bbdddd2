"""A merge is replayed: every row of the source is in the target already, unchanged.

Ours compares first and commits nothing. The peer is a plain `MERGE INTO … UPDATE SET * … INSERT *`, which rewrites what it
matches. Both have the same key, source files and target. Equal: the rows of both tables, before and after.
"""

from functools import partial

from pyspark.sql import DataFrame

from benchmarks import data
from benchmarks.case import require_equal
from benchmarks.cases.rules import replace_days
from benchmarks.figure import Figure, Kind
from benchmarks.measure import alternate
from benchmarks.workbench import Workbench
from de_resources.delta.table import Table
from de_resources.delta.write.merge import MergeRule, merge

RULE = MergeRule(key=("visit_id",))


def run(bench: Workbench) -> list[Figure]:
    """The price of a replay."""
    rows = bench.pick(small=2_000, full=200_000)
    frame = data.stage(bench, "merge_replay", days=1, rows_per_day=rows)
    compared, plain = (bench.table(name, partitioned_by=("day",)) for name in ("merge_compared", "merge_plain"))
    for table in (compared, plain):
        replace_days(bench, table, frame)
    version, _ = data.newest_commit(compared.uri)

    def verify() -> None:
        data.require_same_rows(bench, "a merge", rows, compared.uri, plain.uri)

    samples = alternate(
        {"ours": partial(_merge, bench, compared, frame), "plain": partial(_plain_merge, bench, plain, frame)},
        verify=verify,
    )
    verify()
    require_equal("a replayed merge (version)", version, data.newest_commit(compared.uri)[0])
    note = f"files written by each replay: 0 and {data.newest_commit(plain.uri)[1]}"
    what = f"replay of {rows:,} unchanged rows"
    return [
        Figure(
            "merge_replay", what, Kind.RATIO, "compare, then merge", samples["ours"],
            "plain `MERGE INTO`", samples["plain"], note=note,
        )
    ]  # fmt: skip


def _merge(bench: Workbench, table: Table, frame: DataFrame) -> None:
    slice_ = data.slice_of(data.day_keys(1))
    merge(bench.spark, table, frame, bench.stamp(table), rule=RULE, slice_=slice_)


def _plain_merge(bench: Workbench, table: Table, frame: DataFrame) -> None:
    statement = (
        f"MERGE INTO {table.sql} t USING {{source}} s ON t.visit_id = s.visit_id "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    bench.spark.sql(statement, source=frame)
