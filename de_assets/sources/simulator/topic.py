"""Feeds the broker: the lines that would land in files, as messages keyed by visit id, malformed ones among them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import KafkaError, Message, Producer

from de_assets.sources.simulator.drop import visits_per_hour
from de_assets.sources.simulator.irregularities import NONE, Irregularities
from de_assets.sources.simulator.lines import chunks, delivered
from de_assets.sources.simulator.truth import Truth
from de_assets.sources.simulator.world import World
from de_resources.errors import TransientError


class VisitMessage(NamedTuple):
    """A message for the visits topic. The key is the visit id, None where the record has none."""

    key: bytes | None
    value: bytes


class UndeliveredError(TransientError):
    """The broker did not confirm all messages."""

    def __init__(self, topic: str, delivered: int, undelivered: int, cause: str) -> None:
        self.topic = topic
        self.delivered = delivered
        self.undelivered = undelivered
        self.cause = cause
        super().__init__(
            f"Topic `{topic}`: {delivered} messages were confirmed and {undelivered} were not ({cause}). "
            "See whether the broker is up, then feed the messages again: consumers drop repeated ones by their ids."
        )


def visit_messages(
    world: World,
    hours: Sequence[datetime],
    *,
    total: int | None = None,
    per_hour: int | None = None,
    irregularities: Irregularities = NONE,
    truth_beside: Path | None = None,
) -> Iterator[VisitMessage]:
    """Yield the lines that `land_visits` would land with the same arguments, in order of arrival.

    The truth is the same, too; it is written as for a landing when `truth_beside` names a folder, and positions then
    count messages per hour.
    """
    for hour, visits in visits_per_hour(hours, total, per_hour, irregularities):
        delivery = delivered(world, hour, visits, irregularities)
        if truth_beside is not None:
            Truth(truth_beside).record(delivery.truth)
        for chunk in chunks(world, delivery):
            for line in chunk:
                yield VisitMessage(None if line.visit_id is None else line.visit_id.encode(), line.payload)


def feed_topic(producer: Producer, topic: str, messages: Iterable[VisitMessage], timeout: float = 60.0) -> int:
    """Produce all messages and wait until the broker has confirmed each; returns their number.

    Not idempotent: fed twice, a topic holds each message twice. Raises `UndeliveredError` when a delivery failed, or
    when the broker took nothing for `timeout` seconds.
    """
    reports = _Reports()
    produced = 0
    for produced, message in enumerate(messages, start=1):
        deadline = time.monotonic() + timeout
        while not _accepted(producer, topic, message, reports):
            if time.monotonic() > deadline:
                raise UndeliveredError(topic, reports.delivered, produced - reports.delivered, "the queue stayed full")
        producer.poll(0)
    producer.flush(timeout)
    if reports.delivered != produced:
        cause = str(reports.last_error or f"no answer within {timeout:g} s")
        raise UndeliveredError(topic, reports.delivered, produced - reports.delivered, cause)
    return produced


def feed_hours(
    producer: Producer,
    topic: str,
    world: World,
    hours: Sequence[datetime],
    *,
    total: int | None = None,
    per_hour: int | None = None,
    irregularities: Irregularities = NONE,
    truth_beside: Path | None = None,
) -> list[int]:
    """Produce the `visit_messages` of these hours, each hour after the broker has confirmed the one before.

    The hours' records are then apart by the broker's clock as well, in all partitions: a stream that is fed faster than
    life, and still in the order of life. Returns the number of messages of each hour. Raises as `feed_topic`.
    """
    fed = []
    for hour, visits in visits_per_hour(hours, total, per_hour, irregularities):
        messages = visit_messages(
            world, [hour], per_hour=visits, irregularities=irregularities, truth_beside=truth_beside
        )
        fed.append(feed_topic(producer, topic, messages))
        _next_millisecond()
    return fed


def _next_millisecond() -> None:
    """Until the clock shows another millisecond, the broker's unit."""
    now = time.time_ns() // 1_000_000
    while time.time_ns() // 1_000_000 == now:
        time.sleep(0.0005)


class _Reports:
    """Counts delivery reports."""

    def __init__(self) -> None:
        self.delivered = 0
        self.last_error: KafkaError | None = None

    def __call__(self, error: KafkaError | None, _message: Message) -> None:
        if error is None:
            self.delivered += 1
        else:
            self.last_error = error


def _accepted(producer: Producer, topic: str, message: VisitMessage, reports: _Reports) -> bool:
    """Whether the producer's queue took the message; when it is full, wait a moment for reports."""
    try:
        producer.produce(topic, key=message.key, value=message.value, on_delivery=reports)
    except BufferError:
        producer.poll(0.5)
        return False
    return True
