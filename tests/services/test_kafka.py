"""The broker as clients meet it."""

from __future__ import annotations

import socket
import struct
import time
from uuid import uuid4

import pytest
from confluent_kafka import (
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from waiting import PATIENCE

from de_resources.kafka import BrokerMisconfigured, KafkaBroker
from de_resources.local import LocalServices, ServiceUnavailable, TopicSpec
from de_resources.local.topics import TopicNotCreated

pytestmark = pytest.mark.services


def test_records_of_the_visits_topic_carry_the_brokers_time(at_home: LocalServices) -> None:
    broker = KafkaBroker()
    before = time.time() * 1000
    delivered: list[Message] = []
    producer = Producer({**broker.client_config(), "acks": "all"})
    # The producer's own clock is far off, and must not matter.
    producer.produce("visits", key=b"k", value=b"v", timestamp=1, on_delivery=lambda _error, m: delivered.append(m))
    assert producer.flush(PATIENCE) == 0
    assert delivered[0].error() is None

    record = _stored(broker, delivered[0])

    kind, milliseconds = record.timestamp()
    assert kind == TIMESTAMP_LOG_APPEND_TIME
    assert before - 1000 <= milliseconds <= time.time() * 1000 + 1000
    assert (record.key(), record.value()) == (b"k", b"v")


def test_declared_topics_exist_once_and_others_are_not_made_by_accident(at_home: LocalServices) -> None:
    broker, fresh = KafkaBroker(), f"fresh-{uuid4().hex[:8]}"
    assert broker.ensure_topics([TopicSpec("visits", partitions=9), TopicSpec(fresh)]) == [fresh]
    assert broker.ensure_topics([TopicSpec(fresh)]) == []

    topics = AdminClient({**broker.client_config()}).list_topics(timeout=PATIENCE).topics
    assert len(topics["visits"].partitions) == 3
    failed: list[KafkaError] = []
    producer = Producer({**broker.client_config(), "message.timeout.ms": 2000, "log_level": 0})
    producer.produce("typo", value=b"v", on_delivery=lambda error, _message: failed.append(error))
    producer.flush(15)
    assert failed[0] is not None
    assert "typo" not in AdminClient({**broker.client_config()}).list_topics(timeout=PATIENCE).topics


def test_a_topic_that_the_broker_refuses_is_named(at_home: LocalServices) -> None:
    with pytest.raises(TopicNotCreated, match="odd") as refused:
        KafkaBroker().ensure_topics([TopicSpec("odd", config={"no.such.setting": "1"})])

    assert refused.value.topic == "odd"


def test_a_wrong_password_is_refused(at_home: LocalServices) -> None:
    stolen = {**KafkaBroker().client_config(), "sasl.password": "guess", "log_level": 0}
    with pytest.raises(KafkaException):
        AdminClient(stolen).list_topics(timeout=3)

    anonymous = {"bootstrap.servers": stolen["bootstrap.servers"], "log_level": 0}
    with pytest.raises(KafkaException):
        AdminClient(anonymous).list_topics(timeout=3)


def test_the_controllers_listener_asks_for_a_password_too(at_home: LocalServices) -> None:
    configuration = (at_home.settings.home / "kafka" / "server.properties").read_text()
    (listeners,) = [line for line in configuration.splitlines() if line.startswith("listeners=")]

    # An open listener would answer error 34, "a SASL handshake makes no sense here".
    assert _sasl_handshake(int(listeners.rpartition(":")[2])) == 0


def test_an_absent_broker_is_named_within_the_time_out(at_home: LocalServices, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DE_SECRET_ANY", "x")
    absent = KafkaBroker(bootstrap_servers="127.0.0.1:1", user="de", password="secret://any")
    before = time.monotonic()

    with pytest.raises(ServiceUnavailable, match=r"127\.0\.0\.1:1 does not answer.*de up") as error:
        absent.check()

    assert time.monotonic() - before < PATIENCE
    assert error.value.service == "kafka"
    assert KafkaBroker().reachable()


def test_the_password_is_not_in_the_description(at_home: LocalServices) -> None:
    broker = KafkaBroker()
    password = broker.client_config()["sasl.password"]

    assert password in broker.spark_options()["kafka.sasl.jaas.config"]
    assert password not in str(broker.description())


def test_a_configured_broker_needs_its_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BrokerMisconfigured, match="secret://name"):
        KafkaBroker(bootstrap_servers="127.0.0.1:1").client_config()
    monkeypatch.setenv("DE_SECRET_ODD", 'a"; user_x="')
    with pytest.raises(BrokerMisconfigured, match="JAAS"):
        KafkaBroker(bootstrap_servers="127.0.0.1:1", user="de", password="secret://odd").spark_options()


def _stored(broker: KafkaBroker, delivered: Message) -> Message:
    """The record at the place that the broker has confirmed; others may have published before."""
    consumer = Consumer({**broker.client_config(), "group.id": "reader"})
    consumer.assign([TopicPartition(delivered.topic(), delivered.partition(), delivered.offset())])
    deadline = time.monotonic() + PATIENCE
    try:
        while time.monotonic() < deadline:
            record = consumer.poll(0.5)
            if record is not None and record.error() is None:
                return record
    finally:
        consumer.close()
    pytest.fail("no record within 30 seconds")


def _sasl_handshake(port: int) -> int:
    """Ask a listener to begin a PLAIN login, in Kafka's wire protocol; its error code (0: go on with the password)."""
    request = struct.pack(">hhih", 17, 1, 7, -1) + struct.pack(">h5s", 5, b"PLAIN")
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        _size, correlation, error = struct.unpack(">iih", connection.recv(10, socket.MSG_WAITALL))
    assert correlation == 7
    return int(error)
