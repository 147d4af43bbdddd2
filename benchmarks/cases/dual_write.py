"""A day's rows are overwritten while a column of the table is renamed, beside the same write without a migration.

Both are the writer's whole way under the table's seam: the phase is read from the log, the frame is filled, `replaceWhere`
commits it. The table under migration stores the renamed column twice. Equal: the rows of both tables, and that both sides say
the same in every row.
"""

from collections.abc import Mapping
from functools import partial

import pyspark.sql.types as T
from dagster_delta import WriteMode
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from benchmarks import data
from benchmarks.case import require_equal
from benchmarks.figure import Figure, Kind
from benchmarks.measure import Samples, alternate
from benchmarks.workbench import Workbench
from de_resources.delta.table import Table
from de_resources.delta.write.modes import write_table
from de_resources.delta.write.request import WriteRequest
from de_resources.migrations import rename
from de_resources.migrations.dual_write import DualWrite, under_migration
from de_resources.migrations.steps import Migrator

BAR = 1.3
ADDRESS = rename("address_for_page", "page", "address", T.StringType())


def run(bench: Workbench) -> list[Figure]:
    """The price of the second side."""
    rows = bench.pick(small=50_000, full=2_000_000)
    frame = data.stage(bench, "dual_write", days=1, rows_per_day=rows)
    plain, both = (bench.table(name, partitioned_by=("day",)) for name in ("one_side", "both_sides"))
    for table in (plain, both):
        table.create_if_missing(bench.spark, frame.schema)
    Migrator(bench.spark, both, ADDRESS, bench.stamp(both)).expand()

    def verify() -> None:
        stored = both.read(bench.spark)
        require_equal("the two sides (rows that differ)", 0, stored.where(~F.expr("page <=> address")).count())
        require_equal("the rows", (rows, rows), (stored.count(), plain.read(bench.spark).count()))
        missing = plain.read(bench.spark).exceptAll(stored.drop("address")).count()
        require_equal("the rows of one side alone", 0, missing)

    samples = alternate(
        {"both": partial(_write, bench, both, frame), "one": partial(_write, bench, plain, frame)},
        verify=verify,
        rounds=bench.pick(small=2, full=7),
        at_most=bench.pick(small=2, full=31),
        enough=lambda taken: _figure(rows, taken).is_decided,
        warm_ups=4,
    )
    return [_figure(rows, samples)]


def _write(bench: Workbench, table: Table, frame: DataFrame) -> None:
    settings = under_migration(f"{__name__}:ADDRESS") if table.name.endswith("both_sides") else {}
    request = WriteRequest(
        session=bench.spark,
        frame=frame,
        table=table,
        slice=data.slice_of(data.day_keys(1)),
        stamp=bench.stamp(table),
        mode=WriteMode.overwrite,
        metadata=settings,
    )
    write_table(DualWrite().prepare(request) if settings else request)


def _figure(rows: int, samples: Mapping[str, Samples]) -> Figure:
    return Figure(
        "dual_write", f"overwrite of {rows:,} rows", Kind.RATIO, "both sides of a rename",
        samples["both"], "one side", samples["one"], BAR,
    )  # fmt: skip
