"""What can go wrong with a broker, its topics, those who read them and those who write to them."""

from __future__ import annotations

from collections.abc import Collection

from de_resources.errors import PermanentError, TransientError
from de_resources.kafka.output import TopicOutput

START_IT = "start it with `de up kafka`, or name another broker in the resource's `bootstrap_servers`."
_BEGIN_AGAIN = "Remove the checkpoint to read what the topic holds from its beginning."


class TopicMissing(PermanentError):
    """The broker has no such topic."""

    def __init__(self, topic: str, servers: str) -> None:
        self.topic, self.servers = topic, servers
        super().__init__(
            f"The topic `{topic}` does not exist on {servers}. Create it with `de up kafka`, which declares the platform's "
            "topics."
        )


class BrokerMisconfigured(PermanentError):
    """A broker without the credentials to reach it, or with ones that cannot be passed on."""

    def __init__(self, bootstrap_servers: str, what: str) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.what = what
        super().__init__(f"The broker {bootstrap_servers} cannot be used: {what}")


class TopicSilent(TransientError):
    """A broker that stopped delivering before the end of a topic was reached."""

    soon = False

    def __init__(self, topic: str, partitions: list[int], seconds: float) -> None:
        self.topic, self.partitions, self.seconds = topic, partitions, seconds
        super().__init__(
            f"The partitions {partitions} of `{topic}` delivered nothing for {seconds:g} s, though they hold more records. "
            "Look at the broker with `de status`, then run again."
        )


class RecordsGone(PermanentError):
    """Records that were asked for by their offsets, and that the topic no longer holds."""

    def __init__(self, topic: str, positions: Collection[tuple[int, int]]) -> None:
        self.topic, self.positions = topic, sorted(positions)
        shown = ", ".join(f"{partition}@{offset}" for partition, offset in self.positions[:5])
        super().__init__(
            f"{len(positions)} record(s) of `{topic}` are not there any more ({shown}): the topic's retention has removed "
            "them, or it was made again. Have their producer send them again."
        )


class NotAppendTime(PermanentError):
    """A topic whose records carry the time of their producers."""

    def __init__(self, topic: str, found: str) -> None:
        self.topic, self.found = topic, found
        super().__init__(
            f"The topic `{topic}` has `message.timestamp.type={found}`: its records carry whatever time their producers set, "
            "and a key that is made of it would change with the producer's clock. Nothing was read. Set it to `LogAppendTime` "
            "(`kafka-configs --alter --topic`); records that came before keep their old times, so begin with a new topic."
        )


class PositionExpired(PermanentError):
    """Records that the topic dropped before they were read."""

    def __init__(self, topic: str, partition: int, position: int, begin: int) -> None:
        self.topic, self.partition, self.position, self.begin = topic, partition, position, begin
        super().__init__(
            f"The partition {partition} of `{topic}` begins at offset {begin}, but was read only up to {position}: its "
            f"retention removed what lies between. Nothing was read, what was written before stays. {_BEGIN_AGAIN}"
        )


class AnotherTopic(PermanentError):
    """A topic that is not the one whose positions were committed."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        super().__init__(
            f"The topic `{topic}` is not the one that the checkpoint is about: it was made again, or ends before the position. "
            f"Nothing was read, what was written before stays. {_BEGIN_AGAIN}"
        )


class CheckpointUnreadable(PermanentError):
    """Positions that this consumer did not commit."""

    def __init__(self, group: str, topic: str) -> None:
        self.group, self.topic = group, topic
        super().__init__(
            f"The consumer group `{group}` has offsets on `{topic}` that it did not commit itself, or not together: somebody "
            "has moved them. Nothing was read. Delete the group to read the topic from its beginning; what is written "
            "under stable keys stays one copy."
        )


class CheckpointNotCommitted(TransientError):
    """The broker did not take a position."""

    def __init__(self, group: str, topic: str, reason: str) -> None:
        self.group, self.topic, self.reason = group, topic, reason
        super().__init__(
            f"The positions of `{group}` on `{topic}` were not committed ({reason}). Look at the broker with `de status`, and "
            "that no client has joined the group; then run again from the positions before."
        )


class PositionTaken(TransientError):
    """Another run of the same consumer has moved the position that this one went on from."""

    def __init__(self, consumer: str, topic: str) -> None:
        self.consumer, self.topic = consumer, topic
        super().__init__(
            f"Another run of the consumer `{consumer}` has read `{topic}` further meanwhile. What this one wrote with its "
            "position was rolled back, so that nothing is there twice. Let only one run; the next one goes on where it is."
        )


class WriterFenced(PermanentError):
    """Another writer of the same application has taken over."""

    def __init__(self, application: str, topic: str) -> None:
        self.application, self.topic = application, topic
        super().__init__(
            f"Another writer `{application}` of the topic `{topic}` took over, and this one's open transactions are aborted. "
            "Let only one run; what is missing is written when the batch is repeated."
        )


class TopicWriteInterrupted(TransientError):
    """The broker did not take a batch."""

    def __init__(self, topic: str, reason: str) -> None:
        self.topic, self.reason = topic, reason
        super().__init__(
            f"The topic `{topic}` could not be written ({reason}). No reader of committed records sees half a transaction. "
            "Look at the broker with `de status`, then run again: the batch is repeated where it is missing."
        )


class BatchOutOfOrder(PermanentError):
    """A batch that is neither the next one of a partition, nor the last one again."""

    def __init__(self, output: TopicOutput, batch: int, partition: int, expected: int) -> None:
        self.output, self.batch, self.partition, self.expected = output, batch, partition, expected
        super().__init__(
            f"Batch {batch} of `{output.application}` cannot be written to `{output.topic}`, where partition {partition} "
            f"expects batch {expected}: the checkpoint was made again or restored, the topic was made again or got a "
            "partition, or the broker has forgotten (a week without a batch). Nothing was written. To begin again, remove "
            f"the checkpoint, delete the consumer group `{output.group}`, and make the topic again."
        )


class CheckpointLost(PermanentError):
    """A topic that was filled by a stream whose checkpoint is not there any more."""

    def __init__(self, output: TopicOutput, checkpoint: str) -> None:
        self.output, self.checkpoint = output, checkpoint
        super().__init__(
            f"`{output.application}` has written batches to `{output.topic}`, but its checkpoint {checkpoint} is gone: to read "
            "the source from its beginning would double them, so nothing was written. Restore the checkpoint. To begin "
            f"again, delete the consumer group `{output.group}` and make the topic again."
        )


class StreamStopped(TransientError):
    """A micro-batch that could not be written."""

    def __init__(self, output: TopicOutput, reason: str) -> None:
        self.output, self.reason = output, reason
        super().__init__(
            f"The stream `{output.application}` into `{output.topic}` stopped: {reason} The next run repeats the micro-batch."
        )


class UnknownKeeper(PermanentError):
    """A reader of a topic that does not say, or not in a known way, who keeps its position."""

    def __init__(self, asset: str, topic: str, said: str | None) -> None:
        self.asset, self.topic, self.said = asset, topic, said
        what = "does not say" if said is None else f"says `{said}` of"
        super().__init__(
            f"`{asset}` reads the topic `{topic}` and {what} who keeps its position. Give it the metadata `reads/{topic}`: "
            "`stream`, `group NAME`, `replica TOPIC`, `sensor NAME`, or `with ASSET`."
        )
