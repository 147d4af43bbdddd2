"""Who keeps the position of a reader of a topic, asked without an engine and without moving the reader.

An asset says so in its metadata, `reads/<topic>`: `stream` (Spark's checkpoint beside its table), `group NAME` (a consumer
group at the broker), `replica TOPIC` (the positions that a replica's writer commits), `sensor NAME` (its cursor), or
`with ASSET`, where another asset keeps it for both.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import TopicPartition

from de_resources.engine.stream_source import FOLLOWED
from de_resources.kafka.group import committed, group_client
from de_resources.kafka.stream_position import stream_position
from de_resources.kafka.topic import Topic

READS = "reads/"
KINDS = ("stream", "group", "replica", "sensor", "with")


@dataclass(frozen=True)
class KeptPosition:
    """By partition the offset that is read next, and the identity of the topic where its keeper knows it."""

    offsets: Mapping[int, int]
    topic_id: str | None = None


def at_stream(checkpoint: Path, topic: str) -> KeptPosition | None:
    """Of a stream of Spark's, by its checkpoint on a local disk; None where it never committed a batch."""
    offsets = stream_position(checkpoint, topic)
    return KeptPosition(offsets, _followed(checkpoint)) if offsets is not None else None


def at_group(topic: Topic, group: str) -> KeptPosition | None:
    """Of a consumer group; None where it has committed nothing, or was deleted.

    Raises `TopicMissing`, `ServiceUnavailable`, and Kafka's own errors.
    """
    places = [TopicPartition(topic.topic, partition) for partition in range(topic.partitions())]
    with closing(group_client(topic.config, group)) as member:
        known = [place for place in committed(member, places) if place.offset >= 0]
    if not known:
        return None
    return KeptPosition({place.partition: place.offset for place in known}, _topic_said(known[0].metadata))


def at_cursor(cursor: str | None) -> KeptPosition | None:
    """Of a sensor that reads by `read_topic`, from its cursor; None where it has none."""
    if not cursor:
        return None
    told = json.loads(cursor)
    return KeptPosition({int(p): int(offset) for p, offset in told["offsets"].items()}, told.get("topic"))


def _topic_said(metadata: str | None) -> str | None:
    """The identity that the platform's own groups keep beside their offsets; others keep what they like."""
    try:
        told = json.loads(metadata or "")
    except ValueError:
        return None
    return told.get("topic") if isinstance(told, dict) else None


def _followed(checkpoint: Path) -> str | None:
    """The identity of the topic that the stream follows, which its first start has written beside the offsets."""
    for part in sorted((checkpoint / FOLLOWED).glob("part-*")):
        for line in part.read_text().splitlines():
            return str(json.loads(line)["identity"])
    return None
