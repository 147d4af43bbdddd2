"""A micro-batch of a stream into a topic.

Apart from what starts the stream (`sink`): over Spark Connect, the server starts a Python worker for each stream, which imports
this module for it and nothing of the rest, that would take longer than the batch.
"""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql import DataFrame

from de_resources.kafka.writer import KeyedRecord, TopicOutput, TopicWriter
from de_resources.metadata_decorator import WriteContext


def write_batch(output: TopicOutput, context: WriteContext | None, frame: DataFrame, batch: int) -> None:
    """One micro-batch. Runs in the driver; over Connect in a process of the server."""
    with TopicWriter(output) as writer:
        writer.write(batch, _fetched(frame), context.headers(batch) if context else ())


def _fetched(frame: DataFrame) -> Iterator[KeyedRecord]:
    for key, value in frame.toLocalIterator():
        yield KeyedRecord(_bytes(key), _bytes(value))


def _bytes(value: str | bytes | bytearray | None) -> bytes | None:
    if value is None:
        return None
    return value.encode() if isinstance(value, str) else bytes(value)
