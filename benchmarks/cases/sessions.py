"""A day is sessionised: with one day of history, with 10 and with 40.

The visits, the sessions that are over and those that were open at each midnight lie in tables partitioned by day. A run reads
its day and what the day before has left open, and replaces its day in both gold tables through `overwrite.replace`, as
`gold/sessions` and `gold/sessions_pending` do. A ratio of 1 says that a day costs what the day costs, whatever came before
it. The last figure is what a computation without a state has to do for its 41st day: sessionise all 41. Equal: the rows of the
day in both tables, beside every history, and the sessions of one go over all visits that were over on that day.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property, partial

import dagster as dg
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from benchmarks.case import require_equal
from benchmarks.figure import Figure, Kind
from benchmarks.measure import Samples, alternate
from benchmarks.workbench import Workbench
from de_assets.contracts.traffic import Sessions, SessionsPending
from de_assets.gold.sessions import over_by_midnight
from de_assets.gold.sessions_pending import open_at_midnight
from de_assets.transforms.data_value.incremental_sessionizer import SessionWindows
from de_assets.transforms.data_value.sessions import sessions
from de_resources.contract import Contract
from de_resources.delta.slices import make_slice
from de_resources.delta.table import Table
from de_resources.delta.write import overwrite

BAR = 1.2
DAY = timedelta(days=1)
LAST = datetime(2025, 6, 30, tzinfo=UTC)
"""The day that is measured."""
DAYS = dg.DailyPartitionsDefinition("2025-05-01", end_date="2025-07-01")


@dataclass
class History:
    """Tables with as many days before the last one."""

    bench: Workbench
    days: int
    visits_per_day: int

    def __post_init__(self) -> None:
        start = LAST - self.days * DAY
        visits = _visits(self.bench, start, self.days + 1, self.visits_per_day)
        dated = visits.withColumn("event_date", F.to_date("event_time"))
        dated.write.format("delta").partitionBy("event_date").save(self._path)
        self._run(SessionWindows(start, DAY, self.days))

    def last_day(self) -> None:
        """What is measured: the run over the last day."""
        self._run(SessionWindows(LAST, DAY))

    def in_one_go(self) -> None:
        """All days once more, for the sake of the last one."""
        sessions(self.visits()).write.format("noop").mode("overwrite").save()

    def visits(self) -> DataFrame:
        """All of them."""
        return self.bench.spark.read.format("delta").load(self._path)

    def rows_of_last_day(self, table: Table) -> tuple[int, int]:
        """How many, and a sum over the hashes of all their values."""
        frame = table.read(self.bench.spark).where(F.col("event_date") == F.lit(LAST.date()))
        hashes = F.xxhash64(*sorted(frame.columns)).cast("decimal(38,0)")
        (row,) = frame.agg(F.count(F.lit(1)), F.sum(hashes)).collect()
        return int(row[0]), int(row[1])

    def over_on_last_day(self) -> int:
        """By one go over all visits."""
        over_at = F.col("ended_at") + F.lit(timedelta(minutes=30))
        return sessions(self.visits()).where((over_at > F.lit(LAST)) & (over_at <= F.lit(LAST + DAY))).count()

    @cached_property
    def over(self) -> Table:
        """The sessions that are over, by day."""
        return self._table("over", Contract.of(Sessions))

    @cached_property
    def pending(self) -> Table:
        """Those that were open at the end of each day."""
        return self._table("pending", Contract.of(SessionsPending))

    def _run(self, days: SessionWindows) -> None:
        spark = self.bench.spark
        inside = (F.col("event_date") >= F.lit(days.start.date())) & (F.col("event_date") < F.lit(days.end.date()))
        visits = self.visits().where(inside)
        is_new = self.pending.log() is None
        empty = spark.createDataFrame([], Contract.of(SessionsPending).struct_type())
        before = empty if is_new else self.pending.read(spark)
        keys = [(days.start + number * DAY).strftime(DAYS.fmt) for number in range(days.count)]
        own = make_slice(keys, DAYS, "event_date")
        for table, found in (
            (self.over, over_by_midnight(visits, before, days)),
            (self.pending, open_at_midnight(visits, before, days)),
        ):
            overwrite.replace(spark, table, found, self.bench.stamp(table), slice_=own)

    def _table(self, name: str, contract: Contract) -> Table:
        return self.bench.table(f"{name}_{self.days}", contract=contract, partitioned_by=("event_date",))

    @property
    def _path(self) -> str:
        return str(self.bench.folder("visits") / str(self.days))


def run(bench: Workbench) -> list[Figure]:
    """The price of the days before."""
    per_day = bench.pick(small=2_000, full=100_000)
    few, some, many = (History(bench, days, per_day) for days in (1, 10, bench.pick(small=12, full=40)))

    def verify() -> None:
        for history in (few, some, many):
            require_equal("a day's sessions", few.rows_of_last_day(few.over), history.rows_of_last_day(history.over))
            pending = history.rows_of_last_day(history.pending)
            require_equal("a day's open sessions", few.rows_of_last_day(few.pending), pending)
            require_equal("one go", history.over_on_last_day(), history.rows_of_last_day(history.over)[0])

    figures = partial(_figures, per_day, many.days)
    samples = alternate(
        {"many": many.last_day, "some": some.last_day, "one": few.last_day},
        verify=verify,
        rounds=bench.pick(small=2, full=7),
        at_most=bench.pick(small=2, full=15),
        enough=lambda taken: all(figure.is_decided for figure in figures(taken)),
        warm_ups=3,
    )
    # All days take longer than the three others together, and have no bar: once is enough.
    once = alternate({"in one go": many.in_one_go, "one": few.last_day}, verify=verify, rounds=1, warm_ups=0)
    return [*figures(samples), _in_one_go(per_day, many.days, once)]


def _figures(per_day: int, days: int, samples: Mapping[str, Samples]) -> list[Figure]:
    shown, one = _shown(per_day), samples["one"]
    return [
        Figure("sessions", shown, Kind.RATIO, f"after {days} days", samples["many"], "after 1 day", one, BAR),
        Figure("sessions", shown, Kind.RATIO, "after 10 days", samples["some"], "after 1 day", one, BAR),
    ]


def _in_one_go(per_day: int, days: int, samples: Mapping[str, Samples]) -> Figure:
    whole, one = samples["in one go"], samples["one"]
    return Figure("sessions", _shown(per_day), Kind.RATIO, f"all {days + 1} days again", whole, "after 1 day", one)


def _shown(per_day: int) -> str:
    return f"sessions of a day of {per_day:,} visits"


def _visits(bench: Workbench, start: datetime, days: int, per_day: int) -> DataFrame:
    """A day's visits are the same, moved by whole days: one visitor for each twenty, at pseudo-random times of the day."""
    numbers = bench.spark.range(days * per_day)  # before the functions: columns need a session
    number = F.pmod(F.col("id"), F.lit(per_day))
    day = F.floor(F.col("id") / per_day)
    second = F.pmod(F.xxhash64(number), F.lit(86_400))
    return numbers.select(
        F.concat(F.lit("u"), F.pmod(F.xxhash64(number, F.lit(1)), F.lit(per_day // 20)).cast("string")).alias(
            "user_id"
        ),
        F.timestamp_seconds(F.lit(int(start.timestamp())) + day * 86_400 + second).alias("event_time"),
        F.lpad(number.cast("string"), 12, "0").alias("visit_id"),
        F.concat(F.lit("/page/"), F.pmod(number, F.lit(1_000)).cast("string")).alias("page"),
    )
