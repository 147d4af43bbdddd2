"""An increment of a stream, each record with a verdict, and the state that the next increment starts from.

Patterns: Late Data Detector and Windowed Deduplicator, streaming flavours. A record is, in this order, *malformed*, a
*duplicate*, *late*, *future* or *valid*. The same records in the same order get the same verdicts, however runs cut them:
all that a verdict depends on is in the record, in those before it, or in the state.

The state is a frame of two kinds of rows (`entry`). `source`: per source its position and mark, the newest batch with its
watermark, and how many of its records got which verdict so far. `key`: what is remembered, until when.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import timedelta

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from de_assets.transforms.error_management.stream_deduplicator import mark_copies, memory_after
from de_assets.transforms.error_management.watermark import (
    BATCH,
    WATERMARK,
    Lateness,
    SourceProgress,
    Stream,
    in_batches,
    latest_possible,
    marks_after,
    moment,
    reached,
)

VERDICT = "verdict"
COPY = "copy"
VERDICTS = ("valid", "late", "future", "duplicates", "malformed")
_VERDICT_OF = {"understood": "malformed", "first_copy": "duplicates", "not_late": "late", "not_in_the_future": "future"}
_TIMES = ("tracked", "seen", "newest_tracked", "newest_seen", BATCH, WATERMARK)
_NUMBERS = ("position", "records", *VERDICTS)


@dataclass(frozen=True)
class RecordRule:
    """How a stream is judged. `understood` is the SQL predicate of a well-formed record; `key` identifies copies, which
    are remembered for `remember` beyond the watermark; the first to arrive survives."""

    stream: Stream
    lateness: Lateness
    key: tuple[str, ...]
    remember: timedelta
    understood: str = "TRUE"

    @property
    def conditions(self) -> dict[str, str]:
        """What makes a judged record valid, by name, in order."""
        first = {"understood": self.understood, "first_copy": f"NOT {COPY}"}
        return {**first, **self.lateness.conditions(self.stream)}

    @property
    def order(self) -> tuple[str, ...]:
        """The order of arrival."""
        return (BATCH, self.stream.arrived, self.stream.source, self.stream.position)


@dataclass(frozen=True)
class JudgedSource:
    """What the state knows of one source: the last position that was judged, its mark, and totals by verdict."""

    position: int
    mark: SourceProgress
    totals: Mapping[str, int]


@dataclass(frozen=True)
class JudgeState:
    """Where a stream has been judged to. `opened` and `watermark` are microseconds; `memory` has the keys."""

    memory: DataFrame
    sources: Mapping[int, JudgedSource] = field(default_factory=dict)
    opened: int | None = None
    watermark: int | None = None

    @classmethod
    def of(cls, rows: DataFrame) -> JudgeState:
        """From the rows of the state: those of the sources, a handful, are fetched."""
        times = [F.unix_micros(name).alias(name) for name in _TIMES]
        found = rows.where("entry = 'source'").select("source", *_NUMBERS, *times).collect()
        sources = {
            row["source"]: JudgedSource(
                row["position"],
                SourceProgress(row["tracked"], row["seen"], row["newest_tracked"], row["newest_seen"]),
                {name: row[name] for name in ("records", *VERDICTS)},
            )
            for row in found
        }
        opened, watermark = (found[0][BATCH], found[0][WATERMARK]) if found else (None, None)
        return cls(rows.where("entry = 'key'"), sources, opened, watermark)


@dataclass(frozen=True)
class Extent:
    """What an increment covers: the last position per source, and the broker's times between which it came."""

    positions: Mapping[int, int]
    first: int
    last: int

    @classmethod
    def of(cls, records: DataFrame, stream: Stream) -> Extent | None:
        """Read from the records; None where there are none."""
        arrived = F.unix_micros(stream.arrived)
        found = records.groupBy(stream.source).agg(F.max(stream.position), F.min(arrived), F.max(arrived)).collect()
        if not found:
            return None
        return cls({row[0]: row[1] for row in found}, min(row[2] for row in found), max(row[3] for row in found))


@dataclass(frozen=True)
class JudgedRecords:
    """An increment with verdicts: `records` have `batch`, `watermark`, `copy`, `remembered_until` and `verdict`.

    `opened` is the newest batch, `watermark` the one that judged it, in microseconds; `marks` are those after it.
    """

    records: DataFrame
    extent: Extent
    marks: Mapping[int, SourceProgress]
    opened: int
    watermark: int | None


def judge(records: DataFrame, extent: Extent, state: JudgeState, rule: RecordRule) -> JudgedRecords:
    """Judge the records, which come after the state's positions and are what `extent` was read from.

    Lazy, but for the watermark of the newest batch, which is computed at once.
    """
    before = extent.first if state.opened is None else state.opened
    marks = _marks(extent, state, rule)
    batched = in_batches(records, rule.stream, before)
    by_batch = reached(batched, rule.stream, rule.lateness, marks=marks, opened=before, so_far=state.watermark)
    last = by_batch.withColumn(WATERMARK, F.unix_micros(WATERMARK)).orderBy(F.desc(BATCH)).limit(1).collect()[0]
    opened = max(extent.last, before)
    copies = mark_copies(
        batched.join(F.broadcast(by_batch.select(BATCH, WATERMARK)), BATCH),
        rule.key,
        [F.col(c) for c in rule.order],
        time=latest_possible(rule.stream, rule.lateness),
        remember=rule.remember,
        memory=state.memory,
        into=COPY,
    )
    judged = copies.withColumn(VERDICT, F.expr(_verdict(rule.conditions)))
    return JudgedRecords(judged, extent, marks_after(last, marks, opened, before), opened, last[WATERMARK])


def totals(judged: DataFrame, stream: Stream) -> dict[int, Counter[str]]:
    """How many records got which verdict, per source; `records` are all of them."""
    found: dict[int, Counter[str]] = {}
    for source, verdict, count in judged.groupBy(stream.source, VERDICT).count().collect():
        found.setdefault(source, Counter()).update({verdict: count, "records": count})
    return found


def next_state(
    judged: JudgedRecords, state: JudgeState, rule: RecordRule, added: Mapping[int, Mapping[str, int]]
) -> DataFrame:
    """The rows of the state after the judged records: as many as there are sources, and keys within the window.

    `added` are the `totals` of the records.
    """
    memory = memory_after(judged.records, rule.key, state.memory, moment(judged.watermark))
    columns = ", ".join(["source INT", *(f"{name} LONG" for name in (*_NUMBERS, *_TIMES))])
    rows = [tuple(_row(source, judged, state, added).values()) for source in judged.marks]
    sources = memory.sparkSession.createDataFrame(rows, columns)
    sources = sources.withColumns({name: F.timestamp_micros(name) for name in _TIMES})
    return sources.withColumn("entry", F.lit("source")).unionByName(
        memory.withColumn("entry", F.lit("key")), allowMissingColumns=True
    )


def _row(
    source: int, judged: JudgedRecords, state: JudgeState, added: Mapping[int, Mapping[str, int]]
) -> dict[str, int | None]:
    known = state.sources.get(source, JudgedSource(-1, SourceProgress(), {}))
    position = judged.extent.positions.get(source, known.position)
    counts = {n: known.totals.get(n, 0) + added.get(source, {}).get(n, 0) for n in ("records", *VERDICTS)}
    times = {**asdict(judged.marks[source]), BATCH: judged.opened, WATERMARK: judged.watermark}
    return {"source": source, "position": position, **counts, **times}


def _marks(extent: Extent, state: JudgeState, rule: RecordRule) -> dict[int, SourceProgress]:
    """The marks before the increment. A named source is waited for as if it had been seen in the first batch of all."""
    if state.opened is None:
        marks = {source: SourceProgress(newest_seen=extent.first) for source in rule.lateness.sources}
    else:
        marks = {source: known.mark for source, known in state.sources.items()}
    return {**{source: SourceProgress() for source in extent.positions}, **marks}


def _verdict(conditions: Mapping[str, str]) -> str:
    """The first condition that does not hold. Null does not hold."""
    cases = (f"WHEN NOT coalesce({sql}, FALSE) THEN '{_VERDICT_OF[name]}'" for name, sql in conditions.items())
    return f"CASE {' '.join(cases)} ELSE 'valid' END"
