"""A topic as a frame for the engine: as a stream, where every increment goes on where the checkpoint of the one before
ended, or as the slice between offsets that the reader knows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from de_resources.engine.stream_source import StreamSource
from de_resources.kafka.broker import KafkaBroker
from de_resources.kafka.topic import Topic


@dataclass(frozen=True)
class TopicStream:
    """A topic's records as a streaming frame, and which topic they are from: whoever keeps their offsets keeps both."""

    records: DataFrame
    source: StreamSource


def topic_stream(session: SparkSession, broker: KafkaBroker, topic: str, *, at_most: int | None = None) -> TopicStream:
    """The topic from its beginning, in the columns of Spark's source: committed records only.

    `at_most` bounds the offsets of a micro-batch, for who holds one in memory.

    A topic that has lost records which were not read yet stops the stream. One that was made again is known by `source`, which
    `run_available_now` and `write_available_now` compare with their checkpoint. Nothing is skipped in silence. Raises
    `TopicMissing`, and `ServiceUnavailable` at once where the broker is away, not after the stream's own time-outs.
    """
    broker.check()
    source = StreamSource(f"topic {topic}", Topic(broker.client_config(), topic).identity())
    bound = {} if at_most is None else {"maxOffsetsPerTrigger": str(at_most)}
    records = (
        session.readStream.format("kafka")
        .options(**broker.spark_options(), **bound)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        # What a producer that was killed had produced and not committed is nobody's business.
        .option("kafka.isolation.level", "read_committed")
        .load()
    )
    return TopicStream(records, source)


def topic_slice(
    session: SparkSession, broker: KafkaBroker, topic: str, start: Mapping[int, int], end: Mapping[int, int]
) -> DataFrame:
    """The committed records between these offsets of all partitions, in the columns of Spark's source.

    The same whenever it is read. Fails when records are asked for that the topic no longer holds.
    """
    bounds = {
        name: json.dumps({topic: {str(partition): offset for partition, offset in offsets.items()}})
        for name, offsets in (("startingOffsets", start), ("endingOffsets", end))
    }
    return (
        session.read.format("kafka")
        .options(**broker.spark_options(), **bounds)
        .option("subscribe", topic)
        .option("kafka.isolation.level", "read_committed")
        .load()
    )


def partition_slice(
    session: SparkSession, broker: KafkaBroker, topic: str, partition: int, start: int, end: int
) -> DataFrame:
    """As `topic_slice`, of one partition of the topic, for who has a use for what lies together there."""
    bounds = {
        name: json.dumps({topic: {str(partition): offset}})
        for name, offset in (("startingOffsets", start), ("endingOffsets", end))
    }
    return (
        session.read.format("kafka")
        .options(**broker.spark_options(), **bounds)
        .option("assign", json.dumps({topic: [partition]}))
        .option("kafka.isolation.level", "read_committed")
        .load()
    )


def placed(records: DataFrame) -> DataFrame:
    """Each record's value as `payload`, with its place: `topic_partition`, `topic_offset`, `append_time`."""
    return records.select(
        F.col("value").alias("payload"),
        F.col("partition").alias("topic_partition"),
        F.col("offset").alias("topic_offset"),
        F.col("timestamp").alias("append_time"),
    )
