"""Sessions of a stream, by pauses of half an hour: the platform's Stateful Sessionizer beside Spark's own `session_window`.

Latency: 1,000 records per second of Spark's rate source, over 50,000 visitors, a trigger each second: one query after the
other. Event time runs 36 times as fast as the clock, so that a visitor comes every half hour or so and sessions come to their
end; the micro-batches count from when sessions close. The figures are the median and the 99th percentile of how long a
micro-batch took from its trigger to its commit, of those with records. The notes say how many records a query took in a
second of the clock: far below 1,000, it does not keep up, and its micro-batches grow.

Throughput: a backlog of visits in four files, a micro-batch each, drained with available-now into Parquet, in turns. Equal: the
sessions of both, in all columns that both have, and those that `sessions` finds in one go over all visits, as far as the
stream can know them to be over.

The platform's has rules of closing, a waiting room that puts visits in their order, and one call of Python for each
visitor; `session_window` knows a pause and nothing else, and adds up inside the engine, with the state where Spark has it by
default. What is paid for the rules is what is shown; there is no bar.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

from benchmarks.by_hand import fingerprint
from benchmarks.case import require_equal
from benchmarks.figure import Figure, Kind
from benchmarks.measure import Sample, Samples, alternate
from benchmarks.workbench import Workbench
from de_assets.transforms.data_value.closing_rules import Inactivity, micros
from de_assets.transforms.data_value.sessions import GAP, PIECE, sessions
from de_assets.transforms.data_value.stateful_sessionizer import STATE_SETTINGS, Arrival, stream_sessions
from de_resources.delta.write.stream import keep_progress
from de_resources.engine.sessions import only_meanwhile
from de_resources.lag import nearest_rank

START = datetime(2026, 1, 5, tzinfo=UTC)
ARRIVAL = Arrival(late=timedelta(minutes=5), skew=timedelta(minutes=5))
"""Both sources are in order of time: what is late is not what is measured."""
OURS, NATIVE = "Stateful Sessionizer", "`session_window`"
SETTINGS: Mapping[str, Mapping[str, str]] = {OURS: STATE_SETTINGS, NATIVE: {}}
FILES = 4


def run(bench: Workbench) -> list[Figure]:
    """The backlog first: it proves that both find the same, and warms the engine for the latencies."""
    keep_progress(bench.spark)
    return [*Backlog(bench).figures(), *_latencies(bench)]


def visits(numbers: DataFrame, visitors: int) -> DataFrame:
    """A visit for each `id`, in order of time; each visitor has one in half an hour, on average."""
    n = F.col("id")
    # One microsecond more: no two visits are exactly the gap apart.
    at = F.timestamp_micros(F.lit(int(START.timestamp()) * 1_000_000) + n * (micros(GAP) // visitors + 1))
    return numbers.select(
        F.concat(F.lit("u"), F.pmod(F.xxhash64(n), F.lit(visitors)).cast("string")).alias("user_id"),
        at.alias("event_time"),
        at.alias("append_time"),
        F.lpad(n.cast("string"), 12, "0").alias("visit_id"),
        F.concat(F.lit("/page/"), (n % 1_000).cast("string")).alias("page"),
        F.lit(None).cast("string").alias("referral"),
    )


def ours(stream: DataFrame) -> DataFrame:
    """The sessions that are over, with the rule that `session_window` has."""
    return stream_sessions(stream, (Inactivity(GAP),), ARRIVAL).select(*PIECE)


def native(stream: DataFrame) -> DataFrame:
    """The same columns by Spark's own session window."""
    place = F.struct("event_time", "visit_id")
    window = F.session_window("event_time", f"{micros(GAP)} microseconds")
    marked = stream.withWatermark("event_time", f"{micros(ARRIVAL.late)} microseconds")
    found = marked.groupBy("user_id", window.alias("session")).agg(
        F.min("event_time").alias("started_at"),
        F.max("event_time").alias("ended_at"),
        F.count("*").alias("visits"),
        F.min_by("page", place).alias("first_page"),
        F.max_by("page", place).alias("last_page"),
    )
    return found.select(*PIECE)


WAYS = {OURS: ours, NATIVE: native}


@dataclass
class Backlog:
    """Visits in files, each of which is one micro-batch."""

    bench: Workbench
    found: dict[str, Path] = field(default_factory=dict)
    """The folder of the newest drain of each way."""
    _numbers: count[int] = field(default_factory=count)

    def figures(self) -> list[Figure]:
        """How long both take, and how many records that is in a second."""
        self.stage()
        samples = alternate(
            {way: partial(self.drain, way) for way in WAYS},
            verify=self.verify,
            rounds=self.bench.pick(small=1, full=3),
        )
        what = f"a backlog of {self.rows:,} visits"
        rates = [Figure("stateful_sessions", what, Kind.RATE, way, samples[way], units=self.rows) for way in WAYS]
        return [
            Figure("stateful_sessions", what, Kind.RATIO, OURS, samples[OURS], NATIVE, samples[NATIVE]),
            *rates,
        ]

    def stage(self) -> None:
        """One file after the other: the source takes them in the order in which they were made."""
        share = self.rows // FILES
        for number in range(FILES):
            ids = self.bench.spark.range(number * share, (number + 1) * share, 1, 1)
            visits(ids, self.visitors).write.mode("append").parquet(self._path)

    def drain(self, way: str) -> None:
        """All of it, from nothing."""
        session, folder = self.bench.spark, self.bench.folder("drained") / str(next(self._numbers))
        source = session.readStream.schema(self._all().schema).option("maxFilesPerTrigger", 1)
        with only_meanwhile(session, SETTINGS[way]):
            query = (
                WAYS[way](source.parquet(self._path))
                .writeStream.format("parquet")
                .option("checkpointLocation", str(folder / "checkpoint"))
                .trigger(availableNow=True)
                .start(str(folder / "found"))
            )
        query.awaitTermination()
        self.found[way] = folder / "found"

    def verify(self) -> None:
        """Raise `ResultsDiffer` unless both have found what one go finds."""
        newest = self._all().agg(F.max("event_time")).collect()[0][0]
        over = F.col("ended_at") + F.lit(GAP) <= F.lit(newest - ARRIVAL.late)
        in_one_go = fingerprint(sessions(self._all()).where(over).select(*PIECE))
        found = (self.bench.spark.read.parquet(str(self.found[way])) for way in WAYS)
        require_equal("sessions of the backlog", in_one_go, *map(fingerprint, found))
        require_equal("sessions of the backlog (whether there are any)", True, in_one_go[0] > 0)

    @property
    def rows(self) -> int:
        """How many visits there are; eight for each visitor, on average."""
        return 8 * self.visitors

    @property
    def visitors(self) -> int:
        """Far fewer than those of the latency, so that rounds end."""
        return self.bench.pick(small=100, full=5_000)

    @property
    def _path(self) -> str:
        return str(self.bench.folder("backlog"))

    def _all(self) -> DataFrame:
        return self.bench.spark.read.parquet(self._path)


@dataclass(frozen=True)
class Load:
    """Records by the clock: first until sessions close, then as long as is measured."""

    per_second: int
    visitors: int
    settle: int
    measured: int


@dataclass(frozen=True)
class MicroBatch:
    """What the engine tells of one: its records, when it began, and how long it took from there to its commit."""

    records: int
    began: datetime
    seconds: float

    @classmethod
    def of(cls, progress: Any) -> MicroBatch:
        """Of the engine's progress."""
        took = progress["durationMs"]["triggerExecution"] / 1000
        return cls(progress["numInputRows"], datetime.fromisoformat(progress["timestamp"]), took)


def _latencies(bench: Workbench) -> list[Figure]:
    load = Load(
        per_second=bench.pick(small=100, full=1_000),
        visitors=bench.pick(small=250, full=50_000),
        settle=bench.pick(small=5, full=65),
        measured=bench.pick(small=8, full=75),
    )
    taken = {way: _batches(bench, way, load) for way in WAYS}
    return [figure for way, batches in taken.items() for figure in latency_figures(way, load, batches)]


def latency_figures(way: str, load: Load, batches: Sequence[MicroBatch]) -> list[Figure]:
    """p50 and p99 of micro-batches, as the engine's progress tells of them; the note is about how many records they had."""
    took: Samples = tuple(Sample(each.seconds) for each in batches)
    note = f"{len(batches)} micro-batches"
    if batches:
        records, at_work = sum(each.records for each in batches), sum(each.seconds for each in batches)
        clock = (batches[-1].began - batches[0].began).total_seconds() + batches[-1].seconds
        note += (
            f"; {records / clock:,.0f} records in a second of the clock, {records / at_work:,.0f} in a second at work"
        )
    p99: Samples = (Sample(nearest_rank(sorted(each.wall for each in took), 0.99)),) if took else ()
    what = f"a micro-batch at {load.per_second:,} records/s, {load.visitors:,} visitors"
    return [
        Figure("stateful_sessions", f"{what}: p50", Kind.SECONDS, way, took, note=note),
        Figure("stateful_sessions", f"{what}: p99", Kind.SECONDS, way, p99),
    ]


def _batches(bench: Workbench, way: str, load: Load) -> list[MicroBatch]:
    """The progress of each micro-batch with records that began in the measured time."""
    session = bench.spark
    rate = session.readStream.format("rate").option("rowsPerSecond", load.per_second).load()
    stream = WAYS[way](visits(rate.withColumnRenamed("value", "id"), load.visitors))
    with only_meanwhile(session, SETTINGS[way]):
        query = (
            stream.writeStream.format("noop")
            .option("checkpointLocation", str(bench.folder("latency") / way.strip("`")))
            .trigger(processingTime="1 second")
            .start()
        )
    try:
        _runs_for(query, load.settle)
        # Also a micro-batch that is at work is one that began before.
        before = len(query.recentProgress) + 1
        _runs_for(query, load.measured)
    finally:
        query.stop()
    return [batch for progress in query.recentProgress[before:] if (batch := MicroBatch.of(progress)).records]


def _runs_for(query: StreamingQuery, seconds: int) -> None:
    """Raises the engine's error where the query fails."""
    query.awaitTermination(seconds)
