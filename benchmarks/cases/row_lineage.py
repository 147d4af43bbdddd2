"""What it costs that every row can be traced to the run that wrote it: the stamp that each commit carries.

The same frame is written with the stamp and without it. No column of the rows tells their run, and no byte of their files:
equal are the columns and the bytes of data of both writes.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from deltalake import DeltaTable
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from benchmarks.case import require_equal
from benchmarks.figure import Figure, Kind
from benchmarks.measure import Samples, alternate
from benchmarks.workbench import Workbench

BAR = 1.03
COLUMNS = [f"c{number}" for number in range(20)]
STAMPED, PLAIN = "with the stamp", "plain `df.write`"


def run(bench: Workbench) -> list[Figure]:
    """The price of knowing where every row comes from."""
    count = bench.pick(small=2_000, full=200_000)
    frame, stamp = _staged(bench, count), bench.stamp(bench.table("traced")).text()
    paths = {name: str(bench.folder("rows") / name.split()[0]) for name in (STAMPED, PLAIN)}

    def write(name: str, **options: str) -> None:
        frame.write.format("delta").mode("overwrite").options(**options).save(paths[name])

    def verify() -> None:
        require_equal("the columns", ["id", *COLUMNS], *(_column_names(path) for path in paths.values()))
        require_equal("the bytes of data", *(_bytes_of_data(path) for path in paths.values()))

    def figure(samples: Mapping[str, Samples]) -> Figure:
        what = f"overwrite of {count:,} rows with {len(COLUMNS) + 1} columns"
        note = f"0 columns and 0 bytes of data more; {len(stamp)} bytes in the commit"
        return Figure("row_lineage", what, Kind.RATIO, STAMPED, samples[STAMPED], PLAIN, samples[PLAIN], BAR, note=note)

    samples = alternate(
        {STAMPED: partial(write, STAMPED, userMetadata=stamp), PLAIN: partial(write, PLAIN)},
        verify=verify,
        rounds=bench.pick(small=2, full=15),
        at_most=bench.pick(small=2, full=101),
        enough=lambda taken: figure(taken).is_decided,
        warm_ups=3,
    )
    verify()
    return [figure(samples)]


def _column_names(path: str) -> list[str]:
    return [field.name for field in DeltaTable(path).schema().fields]


def _bytes_of_data(path: str) -> int:
    """Of the files that are live."""
    return sum(Path(file).stat().st_size for file in DeltaTable(path).file_uris())


def _staged(bench: Workbench, count: int) -> DataFrame:
    path = str(bench.folder("staged") / "wide")
    numbers = bench.spark.range(count)
    wide = numbers.select("id", *((F.col("id") * n % 97).alias(name) for n, name in enumerate(COLUMNS, 1)))
    wide.coalesce(1).write.mode("error").parquet(path)
    return bench.spark.read.parquet(path)
