"""One day of a table is overwritten with its own rows: in a table with one other day, and in one with 200 others.

All days have the same number of rows. Both tables are partitioned by day and written through `overwrite.replace`; the one
with 201 days was filled by one commit before. A ratio of 1 says that the cost of a partition does not depend on the others.
Equal: the rows of the replaced day, and the number of rows around it.
"""

from collections.abc import Mapping
from functools import partial

from benchmarks import data
from benchmarks.cases.rules import replace_days
from benchmarks.figure import Figure, Kind
from benchmarks.measure import Samples, alternate
from benchmarks.workbench import Workbench

BAR = 1.2


def run(bench: Workbench) -> list[Figure]:
    """The price of the other partitions."""
    others = bench.pick(small=20, full=200)
    rows = bench.pick(small=1_000, full=20_000)
    first_day = data.stage(bench, "one_day", days=1, rows_per_day=rows)
    few, many = (bench.table(name, partitioned_by=("day",)) for name in ("few_days", "many_days"))
    for table, days in ((few, 2), (many, 1 + others)):
        replace_days(bench, table, data.stage(bench, table.name, days=days, rows_per_day=rows), days)

    def verify() -> None:
        data.require_same_rows(bench, "the replaced day", rows, few.uri, many.uri, where=data.first_day())
        data.require_same_rows(bench, "a table of two days", 2 * rows, few.uri)
        data.require_same_rows(bench, f"a table of {1 + others} days", (1 + others) * rows, many.uri)

    samples = alternate(
        {"many": partial(replace_days, bench, many, first_day), "few": partial(replace_days, bench, few, first_day)},
        verify=verify,
        rounds=bench.pick(small=2, full=7),
        at_most=bench.pick(small=2, full=41),
        enough=lambda taken: _figure(rows, others, taken).is_decided,
        warm_ups=3,
    )
    return [_figure(rows, others, samples)]


def _figure(rows: int, others: int, samples: Mapping[str, Samples]) -> Figure:
    return Figure(
        "partition_overwrite", f"overwrite of 1 partition of {rows:,} rows", Kind.RATIO, f"beside {others} others",
        samples["many"], "beside 1 other", samples["few"], BAR,
    )  # fmt: skip
