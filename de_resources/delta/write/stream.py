"""Draining a stream into a Delta table: everything that is there now, then stop (a scheduled increment).

The checkpoint lies inside the table's folder, so that both are kept or removed together. Delta's sink commits each
micro-batch once, by query id and batch id, so that a replayed batch after a crash adds nothing.

Source: pattern *Checkpointer*; Structured Streaming's `availableNow` trigger; Delta's streaming sink.
"""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming import StreamingQuery

from de_resources.delta.log import Commit
from de_resources.delta.table import CommitInfo, ObservedBatch, Table, Written
from de_resources.delta.write import constraints, frames
from de_resources.delta.write.crash_points import crash_point
from de_resources.delta.write.refusals import explained
from de_resources.delta.write.stored_form import AS_IT_IS, StoredForm
from de_resources.engine.errors import BROKEN_CALLS, ENGINE_ERRORS
from de_resources.engine.sessions import only_meanwhile
from de_resources.engine.stream_source import AnotherSource, StreamSource, require_same
from de_resources.errors import PermanentError
from de_resources.lag import nearest_rank

CHECKPOINT = "_checkpoint"
BATCH_P95 = "stream/batch_p95_ms"
"""Detail of a write: the 95th percentile of how long its micro-batches took."""
_OBSERVATION = "write"
_NO_SETTINGS: Mapping[str, str] = MappingProxyType({})
_PROGRESS_KEPT = ("spark.sql.streaming.numRecentProgressUpdates", "100000")
# What Spark's Kafka source says of partitions that are gone or shorter than they were.
_LOST = re.compile(
    "|".join(
        (
            r"Partitions .* have been deleted",
            r"Cannot find initial offsets for partitions [^.]*",
            r"Partition \S+ offset was changed from \d+ to \d+",
            r"Starting offset for \S+ was \d+ but consumer reset to \d+",
            r"Could not read records in offset [^.]*",
            r"Added partition \S+ starts from \d+ instead of 0",
            r"The resolved start offset \d+ is greater than the resolved end offset \d+ for topic \S+ partition \d+",
        )
    )
)
# What Spark says of a state that is not where the checkpoint has left it.
_STATE_LOST = re.compile(r"STREAMING_STATEFUL_OPERATOR_MISSING_STATE_DIRECTORY|CANNOT_LOAD_STATE_STORE[.\w]*")


class StateLost(PermanentError):
    """What the stream remembered is gone, or cannot be read: what it waited for would never come out."""

    def __init__(self, table: str, checkpoint: str, reason: str) -> None:
        self.table, self.checkpoint, self.reason = table, checkpoint, reason
        super().__init__(
            f"The state of the stream into `{table}`, {checkpoint}/state, is gone or cannot be read ({reason}). Nothing was "
            "written, what was there stays. Restore the table's folder from a backup, its checkpoint with it; or remove the "
            "folder: the next run then reads all that its sources hold, from their beginning."
        )


class SourceLost(PermanentError):
    """The stream's source was made again, or has removed what was not read yet."""

    def __init__(self, table: str, checkpoint: str, reason: str) -> None:
        self.table, self.checkpoint, self.reason = table, checkpoint, reason
        super().__init__(
            f"The source of `{table}` does not have what comes next: {reason}. Nothing was written, what was read before "
            f"stays. When its producer has made up for what is missing, remove {checkpoint}: the next run then reads all "
            "that the source holds, from its beginning."
        )


def run_available_now(
    session: SparkSession,
    table: Table,
    frame: DataFrame,
    stamp: CommitInfo,
    source: StreamSource | None = None,
    *,
    form: StoredForm = AS_IT_IS,
    settings: Mapping[str, str] = _NO_SETTINGS,
) -> Written:
    """Append what the stream holds that no earlier run has read.

    The write's details are `stream/from` and `stream/to`, the sources' own offsets, and `stream/batches`; of a stream with a
    state also what it holds at the end (`state_size`). A rerun
    without new input commits nothing. A killed run is continued by the next one, without loss and without repetition.
    `source` says whose offsets the checkpoint has, where the engine cannot tell by itself: a topic. It is told as
    `stream/source`, also that it was adopted for a checkpoint that did not know it. `settings` are the engine's for this
    query alone, such as where it keeps its state.
    Raises `SourceLost` when the source no longer has what comes next, or is another one, `StateLost`, and `SourceAway` when it
    does not answer; what was read stays. Rows and violations are of all micro-batches; where the engine did not tell of
    one, both are unknown (None) and never too low.
    """
    started = time.monotonic()
    crash_point("before_write", table.name)
    with explained(table):
        table.create_if_missing(session, frame.schema)
    held = constraints.held(table)
    counted = frames.counted(frame, table.contract, _OBSERVATION, held)
    checkpoint = f"{table.uri}/{CHECKPOINT}"
    followed = identify(session, table.name, checkpoint, source) if source else {}
    crash_point("before_commit", table.name)
    log = table.log()
    before = log.version if log else 0
    keep_progress(session)
    with explained(table), only_meanwhile(session, settings):
        query = (
            form.encoded(counted, table.name)
            .writeStream.format("delta")
            .outputMode("append")
            .options(userMetadata=stamp.text(), checkpointLocation=checkpoint)
            .trigger(availableNow=True)
            .start(table.uri)
        )
    with explained(table):
        await_end(query, table.name, checkpoint)
    crash_point("after_commit", table.name)
    written = _written(table, stamp, before, query.recentProgress, held, time.monotonic() - started)
    return replace(written, details={**written.details, **followed})


def keep_progress(session: SparkSession) -> None:
    """Have the engine tell of every micro-batch of the streams that are started from now on, not of the last 100 only."""
    session.conf.set(*_PROGRESS_KEPT)


def identify(session: SparkSession, output: str, checkpoint: str, source: StreamSource) -> dict[str, str]:
    """What the stream follows, as metadata: `stream/source`. Raises `SourceLost` where the checkpoint is about another one."""
    try:
        adopted = require_same(session, checkpoint, source)
    except AnotherSource as error:
        raise SourceLost(output, checkpoint, str(error)) from error
    return {
        "stream/source": f"{source}, adopted: the checkpoint did not say whose offsets it has"
        if adopted
        else str(source)
    }


def await_end(query: StreamingQuery, output: str, checkpoint: str) -> None:
    """Wait until the stream has read what there is.

    Raises `SourceLost`, `StateLost`, and the engine's own error for other failures.
    """
    try:
        query.awaitTermination()
    except ENGINE_ERRORS as error:
        if gone := _STATE_LOST.search(str(error)):
            raise StateLost(output, checkpoint, gone.group(0)) from error
        lost = _LOST.search(str(error))
        if lost is None:
            raise
        raise SourceLost(output, checkpoint, lost.group(0)) from error
    finally:
        # Where the engine is gone, stopping fails as well, with words that would hide the failure.
        with suppress(*BROKEN_CALLS):
            query.stop()


def _written(
    table: Table, stamp: CommitInfo, before: int, progress: Sequence[Any], held: frozenset[str], seconds: float
) -> Written:
    # A stream with a state also has batches without input: time has come to what was waiting.
    batches = [p for p in progress if p.numInputRows or p.observedMetrics]
    log = table.log()
    version = log.version if log else 0
    commits = [c for c in log.commits(version - before) if c.stamp == json.loads(stamp.text())] if log else []
    if not batches and not commits:
        return Written(version, None, 0, None, seconds, skipped="nothing new at the source")
    rows, violations = _totals(batches) if len(batches) >= len(commits) else (None, None)
    if log:
        rows, violations = constraints.with_held(table, log, (rows, violations), held)
    positions: dict[str, str | int] = {"stream/batches": max(len(batches), len(commits))}
    if batches:
        positions |= {**batch_times(batches), **state_size(batches)}
        positions["stream/from"] = _offsets({each.description: each.startOffset for each in batches[0].sources})
        positions["stream/to"] = _offsets({each.description: each.endOffset for each in batches[-1].sources})
    return Written(
        version,
        commits[0] if commits else None,
        rows,
        violations,
        seconds,
        details=positions,
        batches=_batches(commits, batches),
    )


def _batches(commits: Sequence[Commit], progress: Sequence[Any]) -> tuple[ObservedBatch, ...]:
    """What was seen of each commit; nothing where the engine did not tell of one. A batch that was repeated has no commit."""
    seen = {str(each.batchId): each for each in progress}
    told = [(commit, seen.get(str(commit.parameters.get("epochId")))) for commit in reversed(commits)]
    found = [ObservedBatch(commit, _all_observed(each)) for commit, each in told if each is not None]
    return tuple(found) if len(found) == len(commits) else ()


def batch_times(batches: Sequence[Any]) -> dict[str, int]:
    """How long the micro-batches took, as the engine tells it: P95 and the longest, in milliseconds."""
    took = sorted(int(batch.batchDuration) for batch in batches)
    return {BATCH_P95: int(nearest_rank(took, 0.95)), "stream/batch_max_ms": took[-1]} if took else {}


def state_size(batches: Sequence[Any]) -> dict[str, str | int]:
    """What a stream that remembers holds after these batches, and up to where time has come there; nothing of other streams.

    `stream/state_rows` and `stream/state_bytes` (in memory) at the end; `stream/rows_too_late` of all batches, which were
    behind the watermark (`stream/watermark`) and were dropped.
    """
    operators = list(batches[-1].stateOperators) if batches else []
    if not operators:
        return {}
    too_late = sum(int(each.numRowsDroppedByWatermark) for batch in batches for each in batch.stateOperators)
    return {
        "stream/state_rows": sum(int(each.numRowsTotal) for each in operators),
        "stream/state_bytes": sum(int(each.memoryUsedBytes) for each in operators),
        "stream/rows_too_late": too_late,
        "stream/watermark": str(batches[-1].eventTime.get("watermark", "")),
    }


def _offsets(by_source: Mapping[str, Any]) -> str:
    """The offset of the one source, or those of all of them with their names."""
    if len(by_source) == 1:
        return str(*by_source.values())
    return "\n".join(f"{source}: {offset}" for source, offset in by_source.items())


def _totals(batches: Sequence[Any]) -> frames.Counters:
    """Rows, and violations by rule, of these micro-batches; unknown where one of them was not counted."""
    totals: Counter[str] = Counter()
    for batch in batches:
        observed = _all_observed(batch).get(_OBSERVATION)
        if not observed:
            return None, None
        totals.update({k: int(v or 0) for k, v in observed.items()})
    return frames.split_counters(totals)


def _all_observed(batch: Any) -> dict[str, Mapping[str, Any]]:
    """What was seen of one batch, by the names of the observations."""
    return {name: _named(row) for name, row in batch.observedMetrics.items() if row is not None}


def _named(row: Row) -> Mapping[str, Any]:
    """The values by their names. Over Connect a row comes as its values beside a description of its schema."""
    values: dict[str, Any] = row.asDict()
    if set(values) != {"values", "schema"}:
        return values
    names = [field["name"] for field in values["schema"]["fields"]]
    return dict(zip(names, values["values"], strict=True))
