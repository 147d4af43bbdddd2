"""A topic into another one, on the same broker or another. Pattern: Passthrough Replicator.

Key, value, headers, timestamp, partition and the order within each partition stay. Each batch is one transaction that
holds the records and the position behind them, so that a process killed at any point neither loses nor doubles a
record: what it did not commit is aborted when the next run takes over its transactional identity, which also fences a
replicator that was only believed dead.

Positions are kept by the *target's* broker, as offsets of the consumer group `replicate.<source>`: for each partition of
the target topic, the offset from which the source is read next, and which topic the source is. Only there can they be committed
together with the records. Brokers forget the positions of a group after a week of silence
(`offsets.retention.minutes`); each run renews them, and a replica whose positions are gone is refused instead of
filled a second time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace

from confluent_kafka import Consumer, KafkaException, Producer

from de_resources.errors import TransientError
from de_resources.kafka.group import group_client
from de_resources.kafka.topic import PartitionEnd, Record, Topic
from de_resources.replication.topic_pair import require_replicable
from de_resources.replication.topic_positions import Positions, remembered, starting_positions

BATCH = 10_000
SECONDS = 60.0


class ReplicationInterrupted(TransientError):
    """The broker did not take a batch."""

    def __init__(self, topic: str, reason: str) -> None:
        self.topic, self.reason = topic, reason
        super().__init__(
            f"The replica `{topic}` could not be continued ({reason}). The batch was rolled back, everything before it is "
            "there. Look at the broker, and that no second replicator of the topic runs; then run again."
        )


@dataclass(frozen=True)
class TopicReplicated:
    """What a run copied: records and batches, and by partition the source's offset behind the last one.

    `source` is the topic's identity. `adopted`: the run before was one of a version that did not keep it.
    """

    records: int
    batches: int
    positions: Mapping[int, int]
    source: str
    adopted: bool = False


def replicate_topic(source: Topic, target: Topic, *, batch: int = BATCH) -> TopicReplicated:
    """Copy what the source holds now and the replica does not have yet, then stop.

    `batch` is the number of records per transaction. Only committed records of the source are copied. A rerun without
    new records copies nothing.

    Raises `TopicMissing`, `TopicTooSmall`, `TimestampsNotKept`, `SameTopic` (see `topic_pair.py`), `PositionsLost`,
    `RecordsExpired`, `SourceRecreated` (see `topic_positions.py`), `ServiceUnavailable`, `ReplicationInterrupted`.
    """
    require_replicable(source, target)
    group = _group(source)
    try:
        with closing(_member(source, target)) as member:
            link = _Link(target, group, member)
            known = remembered(member, target.topic)
            done = _drain(source, starting_positions(source, target, known), link, batch)
            return replace(done, adopted=bool(known.offsets) and known.source is None)
    except KafkaException as error:
        raise ReplicationInterrupted(target.topic, error.args[0].str()) from error


def replicated_to(source: Topic, target: Topic) -> Positions:
    """Up to where the source was replicated, by partition; nothing is copied or committed."""
    with closing(_member(source, target)) as member:
        return remembered(member, target.topic)


def _group(source: Topic) -> str:
    return f"replicate.{source.topic}"


def _member(source: Topic, target: Topic) -> Consumer:
    return group_client(target.config, _group(source))


class _Link:
    """The transactional producer of a replica. Opening it ends what a predecessor left open."""

    def __init__(self, target: Topic, group: str, member: Consumer) -> None:
        self.topic, self.member = target.topic, member
        # One identity per replica: whoever takes it over aborts its predecessor's transaction, and fences it.
        identity = {"transactional.id": f"{group}.{target.topic}", "compression.type": "zstd", "log_level": 0}
        self.producer = Producer({**target.config, **identity})
        self.producer.init_transactions(SECONDS)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """A transaction is open meanwhile; an error rolls it back."""
        self.producer.begin_transaction()
        try:
            yield
        except BaseException as error:
            # A fenced or otherwise dead producer has no transaction any more.
            if not (isinstance(error, KafkaException) and error.args[0].fatal()):
                self.producer.abort_transaction(SECONDS)
            raise

    def produce(self, record: Record) -> None:
        """Queue a record for the partition that it had."""
        try:
            self._produce(record)
        except BufferError:
            self.producer.flush(SECONDS)  # the queue is full: wait until the broker has what is in it
            self._produce(record)
        self.producer.poll(0)

    def commit(self, positions: Positions, *, and_begin: bool = False) -> None:
        """Commit the queued records together with the positions behind them."""
        offsets = positions.committed_on(self.topic)
        self.producer.send_offsets_to_transaction(offsets, self.member.consumer_group_metadata(), SECONDS)
        self.producer.commit_transaction(SECONDS)
        if and_begin:
            self.producer.begin_transaction()

    def _produce(self, record: Record) -> None:
        self.producer.produce(
            self.topic,
            key=record.key,
            value=record.value,
            headers=None if record.headers is None else list(record.headers),
            partition=record.partition,
            timestamp=record.timestamp or 0,
        )


def _drain(source: Topic, start: Positions, link: _Link, batch: int) -> TopicReplicated:
    positions = dict(start.offsets)
    reached = replace(start, offsets=positions)
    records = batches = pending = 0
    with link.transaction():
        for item in source.read(dict(positions)):
            if isinstance(item, PartitionEnd):
                positions[item.partition] = item.offset
                continue
            link.produce(item)
            positions[item.partition] = item.offset + 1
            pending += 1
            if pending == batch:
                link.commit(reached, and_begin=True)
                records, batches, pending = records + pending, batches + 1, 0
        # Without records too: the broker keeps positions for a limited time only.
        link.commit(reached)
    return TopicReplicated(records + pending, batches + bool(pending), positions, str(start.source))
