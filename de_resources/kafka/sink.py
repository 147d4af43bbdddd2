"""A stream into a topic, exactly once: micro-batches through a `TopicWriter`, until all that is there was read.

The engine's checkpoint fixes which records a micro-batch has before it is written, and repeats the last one after a crash
under the same id: what `TopicWriter` asks for. The frame must be computed from the source alone: a micro-batch with a
clock or a random number in it is another one when it is repeated.

A micro-batch is fetched to the engine's driver, partition by partition, and written from one process there: never from
the tasks, each of which would have a transaction that ends apart from the others'. Memory is bounded by the source's
`maxOffsetsPerTrigger` (`topic_stream(..., at_most=...)`), and so is the time that a transaction stays open. Over Spark
Connect the writing process is the server's own Python worker, which has to be able to import this package.

Source: patterns *Transactional Writer* and *Checkpointer*; Structured Streaming's `foreachBatch`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from de_resources.delta.write.stream import await_end, batch_times, identify, keep_progress
from de_resources.engine.errors import ENGINE_ERRORS
from de_resources.engine.stream_source import StreamSource, has_begun
from de_resources.kafka.errors import CheckpointLost, StreamStopped
from de_resources.kafka.micro_batch import write_batch
from de_resources.kafka.writer import TopicOutput, TopicWriter, WriteProgress, progress
from de_resources.metadata_decorator import WriteContext

# The last line of a Python error inside the engine's own.
_OURS = re.compile(r"^de_resources\.[\w.]+: (?P<said>.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Drained:
    """What a run wrote. `skipped`: partitions that had the first micro-batch already, which the run before left half done.

    `start` and `end` are the source's own offsets; None where it had nothing new. `source` says whose they are, and that it was
    adopted for a checkpoint that did not know. `times`: how long its micro-batches took (`batch_times`).
    """

    batches: int
    records: int
    skipped: tuple[int, ...]
    start: str | None = None
    end: str | None = None
    source: str | None = None
    times: Mapping[str, int] = field(default_factory=dict)


def write_available_now(
    session: SparkSession,
    records: DataFrame,
    output: TopicOutput,
    checkpoint: str,
    source: StreamSource | None = None,
    context: WriteContext | None = None,
) -> Drained:
    """Write what the streaming frame (columns `key`, `value`) holds that no earlier run has written, then stop.

    A rerun without new input writes nothing. A killed run is continued by the next one, without loss and repetition.
    `source` is what the frame reads, where its offsets do not say which one it is: a topic. `context` goes into the headers of
    each record.

    Raises:
        CheckpointLost: the checkpoint is gone, and the topic is not empty.
        SourceLost: the source no longer has what comes next, or is another one; what was written stays.
        StreamStopped: a micro-batch was not taken, with the reason.
        TopicMissing, WriterFenced, TopicWriteInterrupted: as `TopicWriter`.
    """
    # Also ends what a killed predecessor has left open, though there may be no batch to write.
    with TopicWriter(output) as writer:
        before = writer.progress
        if any(each.next_batch for each in before.values()) and not has_begun(session, checkpoint):
            raise CheckpointLost(output, checkpoint)
        followed = identify(session, output.topic, checkpoint, source) if source else {}
        writer.renew()
    keep_progress(session)
    query = (
        records.select("key", "value")
        .writeStream.foreachBatch(partial(write_batch, output, context))
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    try:
        await_end(query, output.topic, checkpoint)
    except ENGINE_ERRORS as error:
        ours = _OURS.findall(str(error))
        if ours:
            raise StreamStopped(output, ours[-1]) from error
        raise
    return replace(_drained(before, progress(output), query.recentProgress), source=followed.get("stream/source"))


def _drained(before: Mapping[int, WriteProgress], after: Mapping[int, WriteProgress], told: Sequence[Any]) -> Drained:
    """The difference that the run made in the topic; the engine only tells the source's offsets."""
    if not told:
        return Drained(0, 0, ())
    first = int(told[0].batchId)
    return Drained(
        batches=max(each.next_batch for each in after.values()) - first,
        records=sum(after[p].records - each.records for p, each in before.items()),
        skipped=tuple(p for p, each in before.items() if each.next_batch > first),
        start=str(told[0].sources[0].startOffset),
        end=str(told[-1].sources[0].endOffset),
        times=batch_times([each for each in told if each.numInputRows]),
    )
