"""The two sides of a topic replication: whether one can hold the other."""

from __future__ import annotations

from de_resources.errors import PermanentError
from de_resources.kafka.topic import Topic


class TopicTooSmall(PermanentError):
    """A replica that has fewer partitions than its source, so that partitions cannot be kept."""

    def __init__(self, source: str, partitions: int, target: str, fewer: int) -> None:
        self.source, self.partitions, self.target, self.fewer = source, partitions, target, fewer
        super().__init__(
            f"The topic `{target}` has {fewer} partition(s), its source `{source}` has {partitions}. Nothing was copied. "
            f"Give `{target}` {partitions} partitions."
        )


class TimestampsNotKept(PermanentError):
    """A replica whose broker would replace the records' timestamps by its own."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        super().__init__(
            f"The topic `{topic}` has `message.timestamp.type=LogAppendTime`, which replaces the source's timestamps. "
            "Nothing was copied. Set it to `CreateTime`."
        )


class SameTopic(PermanentError):
    """A topic that would be replicated into itself, without an end."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        super().__init__(f"The topic `{topic}` cannot be its own replica. Name another target topic or broker.")


def require_replicable(source: Topic, target: Topic) -> int:
    """The number of the source's partitions, once it is clear that the target can hold them.

    Raises `SameTopic`, `TopicMissing`, `TopicTooSmall`, `TimestampsNotKept`.
    """
    if (source.servers, source.topic) == (target.servers, target.topic):
        raise SameTopic(source.topic)
    partitions, own = source.partitions(), target.partitions()
    if own < partitions:
        raise TopicTooSmall(source.topic, partitions, target.topic, own)
    if target.setting("message.timestamp.type") != "CreateTime":
        raise TimestampsNotKept(target.topic)
    return partitions
