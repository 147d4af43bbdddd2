"""A day's rows are overwritten, with a contract of 20 rules, without one, and by hand-written Spark.

All read the same staged Parquet files and replace the same day of tables made by the same DDL. All but the last go through
`overwrite.replace` (slice guard, row counter, transaction stamp, confirmation in the log). Rules are constraints of the table,
as those of the graph's assets are, which the store holds while it writes; or they are counted on the write's own job, where
an asset leaves them to its check. The last is `df.write … replaceWhere` and nothing else. Equal: the rows of all tables; no
rule is violated.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from pyspark.sql import DataFrame

from benchmarks import data
from benchmarks.case import require_equal
from benchmarks.figure import Figure, Kind
from benchmarks.measure import Samples, alternate
from benchmarks.workbench import Workbench
from de_resources.contract import Contract
from de_resources.delta.table import Table, Written
from de_resources.delta.write import overwrite
from de_resources.delta.write.constraints import present_in

RULES = 20
BAR_RULES, BAR_WRITE = 1.3, 1.1


def run(bench: Workbench) -> list[Figure]:
    """The price of rules, and the price of our write."""
    rows = bench.pick(small=50_000, full=2_000_000)
    frame = data.stage(bench, "rules", days=1, rows_per_day=rows)
    contract = Contract.of(data.PageViews)
    require_equal("the contract (rules)", RULES, len(contract.rules))
    ruled = bench.table("ruled", contract=contract, partitioned_by=("day",))
    held = replace(bench.table("held", contract=contract, partitioned_by=("day",)), enforced=True)
    unruled = bench.table("unruled", partitioned_by=("day",))
    by_hand = bench.table("by_hand", partitioned_by=("day",))
    by_hand.create_if_missing(bench.spark, frame.schema)

    figures = partial(_figures, rows)

    def verify() -> None:
        data.require_same_rows(bench, "an overwrite", rows, ruled.uri, held.uri, unruled.uri, by_hand.uri)
        require_equal("the constraints", RULES, len(present_in(held)))
        for table in (ruled, held):
            counted = replace_days(bench, table, frame).violations
            require_equal(
                "the rules, and the rows that break any",
                (RULES, {0}),
                (len(counted or {}), {*(counted or {}).values()}),
            )

    samples = alternate(
        {
            "held": partial(replace_days, bench, held, frame),
            "counted": partial(replace_days, bench, ruled, frame),
            "without": partial(replace_days, bench, unruled, frame),
            "by hand": partial(_by_hand, by_hand, frame),
        },
        verify=verify,
        rounds=bench.pick(small=2, full=7),
        at_most=bench.pick(small=2, full=31),
        enough=lambda taken: all(figure.is_decided for figure in figures(taken)),
        warm_ups=4,
    )
    return figures(samples)


def _figures(rows: int, samples: Mapping[str, Samples]) -> list[Figure]:
    shown = f"overwrite of {rows:,} rows"
    return [
        *(
            Figure(
                "rules", f"{shown}, {RULES} rules", Kind.RATIO, ours, samples[name],
                "the same write without", samples["without"], BAR_RULES,
            )
            for name, ours in (("held", "rules in the store"), ("counted", "rules counted"))
        ),
        Figure(
            "rules", f"{shown}, no rules", Kind.RATIO, "guarded, stamped write", samples["without"],
            "plain `df.write`", samples["by hand"], BAR_WRITE,
        ),
    ]  # fmt: skip


def replace_days(bench: Workbench, table: Table, frame: DataFrame, days: int = 1) -> Written:
    """Our write of the first day, or days."""
    slice_ = data.slice_of(data.day_keys(days))
    return overwrite.replace(bench.spark, table, frame, bench.stamp(table), slice_=slice_)


def _by_hand(table: Table, frame: DataFrame) -> None:
    frame.write.format("delta").mode("overwrite").option("replaceWhere", data.first_day()).save(table.uri)
