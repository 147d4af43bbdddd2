"""How far streams and other readers have come in a topic, told without an engine and without moving them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from de_resources.kafka.topic import Topic

Position = Mapping[int, int]
"""By partition, the offset that is read next."""


def stream_position(checkpoint: Path, topic: str) -> dict[int, int] | None:
    """Where a stream of Spark's, by its checkpoint on a local disk, goes on in this topic; None where it never came so far.

    Only batches that were committed count: one that was begun and not ended is read again.
    """
    committed = [int(entry.name) for entry in _entries(checkpoint / "commits") if entry.name.isdigit()]
    if not committed:
        return None
    for line in (checkpoint / "offsets" / str(max(committed))).read_text().splitlines():
        if line.startswith("{") and isinstance(offsets := json.loads(line).get(topic), dict):
            return {int(partition): int(offset) for partition, offset in offsets.items()}
    return None


def offsets_ahead(topic: Topic, position: Position | None) -> int:
    """By how many offsets the topic is not where it was left: 0 where nothing happened since.

    A topic that is shorter than the position, or has lost what comes next, is not where it was left either: whoever reads it
    has to say so. Raises `TopicMissing`.
    """
    begins, ends = topic.begins(), topic.ends()
    left = {**begins, **(position or {})}
    return sum(abs(ends.get(partition, -1) - offset) for partition, offset in left.items())


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except FileNotFoundError:
        return []
