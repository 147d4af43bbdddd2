"""Records into a topic of Kafka, each partition in the order in which they come, also when sends fail.

Pattern: FIFO Orderer. A record's key decides its partition, and a partition keeps the order in which the broker takes records. What
may change that order is the producer: it has several requests on their way, and sends again what failed behind what did not.

| flavour | how | a send that fails | copies |
|---|---|---|---|
| `INDIVIDUAL` (for `one_by_one`, `by_key`) | one record, then its acknowledgement | is sent again before anything else | one record, where an acknowledgement was lost |
| `ONE_IN_FLIGHT` | batches; one request at a time | the batch is sent again before the next | a whole batch, where an acknowledgement was lost: the order of arrivals steps back there |
| `IDEMPOTENT` | batches; up to five requests, numbered | the broker takes numbers in order only, and each once | none within the life of a producer |

After the death of the process every flavour may bring copies: what had no receipt is sent again. A reader drops what is not above the
last `sequence` of its key; headers have `id`, `stream` and `sequence`. Source: Apache Kafka's documentation, producer configurations;
KIP-98, *Exactly Once Delivery and Transactional Messaging*; librdkafka's manual, "Idempotent Producer".
"""  # noqa: E501 - a table

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from types import TracebackType
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from de_resources.delivery.errors import ReceiverUnavailable
from de_resources.delivery.records import Answer, Answers, Outcome, OutgoingRecord
from de_resources.kafka.topic import Topic

WINDOW = 2_000
"""Records on their way at once: after a death at most so many come again."""
SECONDS = 60.0
_BATCH_BYTES = 1_000_000
_OVERHEAD = 512
"""Bytes that headers and framing of a record may take."""


class Flavour(Enum):
    """How a producer keeps the order: its settings."""

    INDIVIDUAL = {"enable.idempotence": False, "max.in.flight.requests.per.connection": 1, "linger.ms": 0}  # noqa: RUF012
    ONE_IN_FLIGHT = {"enable.idempotence": False, "max.in.flight.requests.per.connection": 1}  # noqa: RUF012
    IDEMPOTENT = {"enable.idempotence": True, "enable.gapless.guarantee": True}  # noqa: RUF012


class TopicSender:
    """A producer of one topic: open it with `with`. Errors are those of the broker that no waiting mends.

    `config` is a client's, with its login; it never shows. `seconds` is how long a window may take before the broker counts as
    away: nothing is left in the producer's queue then.

    Raises `ServiceUnavailable` and `TopicMissing` when it is made.
    """

    def __init__(
        self,
        config: Mapping[str, str],
        topic: str,
        flavour: Flavour = Flavour.IDEMPOTENT,
        *,
        seconds: float = SECONDS,
        more: Mapping[str, Any] | None = None,
    ) -> None:
        self.topic, self._seconds, self._servers = topic, seconds, config["bootstrap.servers"]
        asked = Topic(config, topic)
        asked.partitions()  # says so where there is no such topic
        self._largest = max(int(asked.setting("max.message.bytes")) - _OVERHEAD, 1)
        self._producer = Producer(
            {
                **config,
                "acks": "all",
                # Who gives up a record in the middle lets the next one overtake it: here all are given up at once.
                "message.timeout.ms": 0,
                "partitioner": "consistent",
                # The broker judges the size of a batch, and refuses all of it.
                "batch.size": min(self._largest, _BATCH_BYTES),
                "message.max.bytes": max(self._largest + _OVERHEAD, _BATCH_BYTES),
                "log_level": 0,
                **flavour.value,
                **(more or {}),
            }
        )

    def __enter__(self) -> TopicSender:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing that has no receipt by now is sent any more."""
        self._forget()

    def send(self, record: OutgoingRecord) -> Answer:
        """Send one record and wait for its acknowledgement; may be called from several threads.

        Raises `ReceiverUnavailable`: whether the record arrived is not known.
        """
        if record.size > self._largest:
            return self._too_large
        said: list[Answer | KafkaError] = []
        self._produce(record, said)
        deadline = time.monotonic() + self._seconds
        while not said:
            self._producer.poll(0.05)
            if time.monotonic() > deadline and not said:
                self._forget()
                raise self._away("no acknowledgement")
        return self._answer(said[0])

    def pipelined(self, records: Sequence[OutgoingRecord], window: int = WINDOW) -> Iterator[Answers]:
        """Send the records, a window after the other, and yield the receipts of each before the next one is sent.

        Within a window records do not wait for each other. Where one fails for good the receipts of those before it are
        yielded, and nothing behind it counts.

        Raises `ReceiverUnavailable`: what of the window has no receipt may have arrived.
        """
        held: set[str] = set()
        for start in range(0, len(records), window):
            refused: dict[OutgoingRecord, Answer] = {}
            said: dict[OutgoingRecord, list[Answer | KafkaError]] = {}
            for record in records[start : start + window]:
                if record.key in held:
                    continue
                if record.size > self._largest:
                    refused[record] = self._too_large
                    held.add(record.key)
                else:
                    self._produce(record, said.setdefault(record, []))
            left = self._producer.flush(self._seconds)
            failed = left > 0 or any(isinstance(each, KafkaError) for answers in said.values() for each in answers)
            if failed:
                self._forget()
            arrived = {r: answers[0] for r, answers in said.items() if answers and isinstance(answers[0], Answer)}
            if arrived or refused:
                yield {**arrived, **refused}
            if failed:
                errors = [each for answers in said.values() for each in answers if isinstance(each, KafkaError)]
                raise self._away(errors[0].str() if errors else "no acknowledgement")

    @property
    def _too_large(self) -> Answer:
        return Answer(Outcome.REFUSED, f"larger than the topic takes ({self._largest:,} bytes)")

    def _produce(self, record: OutgoingRecord, said: list[Answer | KafkaError]) -> None:
        def note(error: KafkaError | None, message: Message) -> None:
            said.append(error or Answer(Outcome.ACCEPTED, f"{message.partition()}@{message.offset()}"))

        headers: dict[str, str | bytes | None] = {
            "id": record.id,
            "stream": record.stream,
            "sequence": str(record.sequence),
        }
        with self._explained():
            while True:
                try:
                    self._producer.produce(
                        self.topic, key=record.key, value=record.body, headers=headers, on_delivery=note
                    )
                except BufferError:  # the queue of this process is full: let it drain
                    self._producer.poll(0.1)
                else:
                    return

    def _answer(self, said: Answer | KafkaError) -> Answer:
        if isinstance(said, Answer):
            return said
        raise self._away(said.str())

    def _forget(self) -> None:
        """Nothing that is still here is sent: it would come behind what a successor sends in its stead."""
        self._producer.purge()
        self._producer.poll(0.1)

    def _away(self, why: str) -> ReceiverUnavailable:
        return ReceiverUnavailable(f"topic {self.topic}", self._servers, why)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except KafkaException as error:
            raise self._away(error.args[0].str()) from error
