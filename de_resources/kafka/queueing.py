"""Handing records to a producer, whose queue in this process has an end."""

from __future__ import annotations

from typing import Any

from confluent_kafka import Producer


def enqueue(producer: Producer, topic: str, **record: Any) -> None:
    """Queue one record (`key`, `value`, … as `Producer.produce` takes them); waits as long as the queue is full.

    What the broker says of it comes with a flush or the end of its transaction.
    """
    while True:
        try:
            producer.produce(topic, **record)
        except BufferError:  # the local queue is full: let it drain
            producer.poll(0.1)
        else:
            producer.poll(0)
            return
