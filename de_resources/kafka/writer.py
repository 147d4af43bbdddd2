"""Batches of records into a topic, each record once for a `read_committed` reader. Pattern: Transactional Writer.

A batch is one transaction per output partition, under a `transactional.id` of its own (`<application>-<partition>`), so
that a reader of one partition never waits for another. A transaction holds the partition's records and the batch's id:
both are committed, or neither. Opening a writer takes the identities over: what a predecessor left open is aborted, and
one that was only believed dead is fenced. Then it looks up the batch that comes next, partition by partition.

The id is kept as an offset of the consumer group `writer.<application>` on the output topic, which never has members: the
offset of partition p is the batch that comes next there, its metadata the records written so far. Unlike a header that
is read back, or a state topic, that is one question to the broker, works for a batch that had nothing for a partition and
beside other producers, and needs no topic of its own. Its price: the broker forgets it after a week without a batch
(`offsets.retention.minutes`), which `renew` prevents and which otherwise is refused, not guessed.

What the caller has to promise: ids count up by one, from 0, and a batch that is repeated has the same records. Then a
batch that ended after some of its partitions is healed by repeating it. That is what a Spark checkpoint promises to
`foreachBatch` for a source with offsets; tasks that each have a transaction do not, because a task that is tried again,
or twice at once, is a writer nobody counts.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import TracebackType
from typing import NamedTuple
from zlib import crc32

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from de_resources.delta.write.crash_points import crash_point
from de_resources.kafka.errors import BatchOutOfOrder, TopicMissing, TopicWriteInterrupted, WriterFenced
from de_resources.kafka.group import committed, group_client
from de_resources.kafka.output import TopicOutput
from de_resources.kafka.queueing import enqueue
from de_resources.kafka.topic import Headers

SECONDS = 60.0
TRANSACTION_SECONDS = 600
"""A batch must be written within it; for so long a writer that dies and never returns holds `read_committed` readers up."""
_FENCING = (KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED)


class KeyedRecord(NamedTuple):
    """What a record says. Its key decides the partition, or its value where it has no key."""

    key: bytes | None
    value: bytes | None

    def partition(self, partitions: int) -> int:
        """The same in every process: CRC-32, as librdkafka's partitioner `consistent`."""
        return crc32(self.value or b"" if self.key is None else self.key) % partitions


class WriteProgress(NamedTuple):
    """How far an output partition is: the batch that comes next, and the records written so far."""

    next_batch: int = 0
    records: int = 0


@dataclass(frozen=True)
class BatchWritten:
    """What became of a batch: records by partition that it was written to, and the partitions that had it already."""

    batch: int
    records: Mapping[int, int]
    skipped: tuple[int, ...]


class TopicWriter:
    """The writer of one application: open it with `with`, and `write` batch after batch.

    Raises `TopicMissing`, `WriterFenced`, `TopicWriteInterrupted` when it is opened.
    """

    def __init__(self, output: TopicOutput) -> None:
        self._output = output
        self._group = _group(output)
        with _said(output):
            partitions = _partitions(output, self._group)
            with ThreadPoolExecutor(len(partitions)) as pool:
                self._producers = dict(zip(partitions, pool.map(self._producer, partitions), strict=True))
            # Only now, for the end of a predecessor's transaction may still have moved it.
            self._progress = _progress(output, self._group)

    def __enter__(self) -> TopicWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with warnings.catch_warnings():
            # It warns, and raises, where it cannot abort; what matters of it was said before, or is the next writer's.
            warnings.simplefilter("ignore", RuntimeWarning)
            for producer in self._producers.values():
                with suppress(KafkaException):
                    producer.close()
        self._group.close()

    @property
    def progress(self) -> Mapping[int, WriteProgress]:
        """How far each partition is."""
        return dict(self._progress)

    def write(self, batch: int, records: Iterable[KeyedRecord], headers: Headers = ()) -> BatchWritten:
        """Write the batch to the partitions that do not have it; records are taken one by one, and not kept.

        Each record gets the headers, which say who writes and nothing of what the records say.

        An error leaves the open transactions aborted; what was committed before it is skipped when the batch is repeated.

        Raises:
            BatchOutOfOrder: neither the next batch nor the last one; nothing was written.
            WriterFenced, TopicWriteInterrupted: see there.
        """
        due = [partition for partition in self._progress if self._is_due(partition, batch)]
        skipped = tuple(partition for partition in self._progress if partition not in due)
        crash_point("before_write", self._output.topic)
        counts = dict.fromkeys(due, 0)
        with _said(self._output), self._transactions(due) as unfinished:
            for record in records if due else ():
                partition = record.partition(len(self._producers))
                if partition in counts:
                    self._produce(partition, record, headers)
                    counts[partition] += 1
            for partition in due:
                before = self._progress[partition].records
                self._commit(partition, WriteProgress(batch + 1, before + counts[partition]))
                unfinished.remove(partition)
                crash_point("after_commit", f"{self._output.topic}-{partition}")
        return BatchWritten(batch, counts, skipped)

    def renew(self) -> None:
        """Commit the progress again, so that the broker remembers it for another week. Raises as `write`."""
        known = [partition for partition, progress in self._progress.items() if progress.next_batch]
        with _said(self._output), self._transactions(known) as unfinished:
            for partition in known:
                self._commit(partition, self._progress[partition])
                unfinished.remove(partition)

    def _producer(self, partition: int) -> Producer:
        identity = {
            "transactional.id": f"{self._output.application}-{partition}",
            "transaction.timeout.ms": TRANSACTION_SECONDS * 1000,
            "compression.type": "zstd",
            "log_level": 0,
        }
        producer = Producer({**self._output.config, **identity})
        producer.init_transactions(SECONDS)
        return producer

    def _is_due(self, partition: int, batch: int) -> bool:
        expected = self._progress[partition].next_batch
        if batch not in (expected, expected - 1):
            raise BatchOutOfOrder(self._output, batch, partition, expected)
        return batch == expected

    @contextmanager
    def _transactions(self, partitions: Iterable[int]) -> Iterator[set[int]]:
        """Open transactions; an error aborts those that are still in the set."""
        unfinished: set[int] = set()
        try:
            for partition in partitions:
                self._producers[partition].begin_transaction()
                unfinished.add(partition)
            yield unfinished
        except BaseException:
            for partition in unfinished:
                # One that is fenced has no transaction any more; one without a broker is aborted by the next writer.
                with suppress(KafkaException):
                    self._producers[partition].abort_transaction(SECONDS)
            raise

    def _produce(self, partition: int, record: KeyedRecord, headers: Headers) -> None:
        place = {"partition": partition, "headers": list(headers)}
        enqueue(self._producers[partition], self._output.topic, key=record.key, value=record.value, **place)

    def _commit(self, partition: int, progress: WriteProgress) -> None:
        """Commit what was produced, together with the progress behind it."""
        producer = self._producers[partition]
        producer.flush(SECONDS)
        crash_point("before_commit", f"{self._output.topic}-{partition}")
        place = TopicPartition(self._output.topic, partition, progress.next_batch, metadata=str(progress.records))
        producer.send_offsets_to_transaction([place], self._group.consumer_group_metadata(), SECONDS)
        producer.commit_transaction(SECONDS)
        self._progress[partition] = progress


def progress(output: TopicOutput) -> Mapping[int, WriteProgress]:
    """How far each partition is, without disturbing a writer. Raises `TopicMissing`, `TopicWriteInterrupted`."""
    group = _group(output)
    try:
        with _said(output):
            return _progress(output, group)
    finally:
        group.close()


def _group(output: TopicOutput) -> Consumer:
    return group_client(output.config, output.group)


def _progress(output: TopicOutput, group: Consumer) -> dict[int, WriteProgress]:
    places = [TopicPartition(output.topic, partition) for partition in _partitions(output, group)]
    known = committed(group, places)
    return {
        p.partition: WriteProgress(p.offset, int(p.metadata or 0)) if p.offset >= 0 else WriteProgress() for p in known
    }


def _partitions(output: TopicOutput, client: Consumer) -> list[int]:
    # Asking for all topics, and not for this one, never creates it.
    found = client.list_topics(timeout=SECONDS).topics
    if output.topic not in found:
        raise TopicMissing(output.topic, output.config["bootstrap.servers"])
    return sorted(found[output.topic].partitions)


@contextmanager
def _said(output: TopicOutput) -> Iterator[None]:
    """The library's errors as the platform's."""
    try:
        yield
    except KafkaException as error:
        if error.args[0].code() in _FENCING:
            raise WriterFenced(output.application, output.topic) from error
        raise TopicWriteInterrupted(output.topic, error.args[0].str()) from error
