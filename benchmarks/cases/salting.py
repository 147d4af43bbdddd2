"""Ten million rows of a key by Zipf's law, exponent 1.5: three in ten rows have the largest one. They are added up by key.

`aggregate_by_skew` into 32 tasks: with the skew measured by itself, which reads all rows once more, and with the skew known
from elsewhere; beside the plain `groupBy`. All take a count, a sum and a mean of whole numbers. These shrink before they
are moved, so that a plain `groupBy` moves at most one row for each key and task, however large the key is: the figures say what
the second stage costs where it has little to win. Staged Parquet in, every value computed, nothing written. There is no bar.
Equal: all rows, in all columns. That the skew asks for salts at all is required.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.by_hand import compute, fingerprint
from benchmarks.case import require_equal
from benchmarks.figure import Figure, Kind
from benchmarks.measure import Samples, alternate
from benchmarks.workbench import Workbench
from de_assets.transforms.data_value.mergeable_measures import count, mean, total
from de_assets.transforms.data_value.salting import Skew, aggregate_by_skew, skew_of
from de_resources.engine.sessions import only_meanwhile

EXPONENT = 1.5
GREATEST_KEY = 1_000_000
TASKS = 32
MEASURED, KNOWN, PLAIN = "salted, skew measured", "salted, skew known", "plain `groupBy`"


def run(bench: Workbench) -> list[Figure]:
    """What salts cost, and what to measure the skew costs."""
    rows = bench.pick(small=200_000, full=10_000_000)
    path = str(bench.folder("salting"))
    rows_of_zipf(bench.spark, rows).write.parquet(path)
    frame = bench.spark.read.parquet(path)
    skew = skew_of(frame, ["key"])
    require_equal("salting (whether the skew asks for salts)", True, skew.salts(TASKS) > 1)
    ways = {
        MEASURED: partial(by_skew, frame, None),
        KNOWN: partial(by_skew, frame, skew),
        PLAIN: partial(plain, frame),
    }

    def verify() -> None:
        require_equal("salting (rows)", *(fingerprint(way()) for way in ways.values()))

    with only_meanwhile(bench.spark, {"spark.sql.shuffle.partitions": str(TASKS)}):
        samples = alternate(
            {name: partial(_compute, way) for name, way in ways.items()},
            verify=verify,
            rounds=bench.pick(small=1, full=9),
            warm_ups=bench.pick(small=1, full=2),
        )
    return figures(rows, skew, samples)


def _compute(way: Callable[[], DataFrame]) -> None:
    """The frame is made in the time that is measured: to measure the skew is part of making it."""
    compute(way())


def figures(rows: int, skew: Skew, samples: Mapping[str, Samples]) -> list[Figure]:
    """Both ways to salt, beside none."""
    what = f"{rows:,} rows of a skewed key"
    note = f"the largest key has {skew.largest / max(skew.rows, 1):.0%} of the rows; {skew.salts(TASKS)} salts"
    return [
        Figure("salting", what, Kind.RATIO, way, samples[way], PLAIN, samples[PLAIN], note=note)
        for way in (MEASURED, KNOWN)
    ]


def by_skew(frame: DataFrame, skew: Skew | None) -> DataFrame:
    """As many salts as the skew asks for."""
    seconds = F.col("seconds")
    measures = {"rows": count(), "total": total(seconds), "mean": mean(seconds)}
    return aggregate_by_skew(frame, ["key"], measures, tasks=TASKS, skew=skew)


def plain(frame: DataFrame) -> DataFrame:
    """As everybody writes it."""
    return frame.groupBy("key").agg(
        F.count("*").alias("rows"), F.sum("seconds").alias("total"), F.avg("seconds").alias("mean")
    )


def rows_of_zipf(spark: SparkSession, rows: int, seed: int = 1) -> DataFrame:
    """Rows of a key: `key`, `seconds` and their own number, in no order of keys."""
    numbers = spark.range(rows)  # before the functions: columns need a session
    chance = (F.pmod(F.xxhash64("id", F.lit(seed)), F.lit(2**53)) + 1) / F.lit(float(2**53))
    return numbers.select("id", zipf(chance).alias("key"), (F.col("id") % 600).alias("seconds"))


def zipf(chance: Column) -> Column:
    """The key of a number in (0, 1]: k or a greater one in k^(1-s) of all cases, so that k itself has about s·k^(-s)."""
    key = F.floor(F.pow(chance, F.lit(-1 / (EXPONENT - 1))))
    return F.least(key, F.lit(GREATEST_KEY).cast("long"))
