"""Feeding the broker when it is not there: an error within the time-out that says how much arrived."""

from __future__ import annotations

import socket
import time

import pytest
from confluent_kafka import Producer
from waiting import PATIENCE

from de_assets.sources.simulator import UndeliveredError, VisitMessage, feed_topic


def test_a_broker_that_is_away_is_an_error_within_the_time_out() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        producer = Producer(
            {"bootstrap.servers": f"127.0.0.1:{probe.getsockname()[1]}", "message.timeout.ms": 300, "log_level": 0}
        )
        began = time.monotonic()
        with pytest.raises(UndeliveredError, match="feed the messages again") as caught:
            feed_topic(producer, "visits", [VisitMessage(b"a", b"{}"), VisitMessage(None, b"\xff")], timeout=PATIENCE)
    assert time.monotonic() - began < PATIENCE
    assert (caught.value.delivered, caught.value.undelivered) == (0, 2)


def test_nothing_to_produce_is_nothing_produced() -> None:
    assert feed_topic(Producer({"bootstrap.servers": "127.0.0.1:1", "log_level": 0}), "visits", [], timeout=1) == 0
