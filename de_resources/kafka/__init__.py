"""Topics: the broker, records by place and time, exactly-once writers, consumers that keep their own positions."""

from de_resources.kafka.broker import KafkaBroker, ServiceUnavailable, TopicSpec
from de_resources.kafka.errors import BrokerMisconfigured, TopicMissing
from de_resources.kafka.topic import Record, Topic

__all__ = [
    "BrokerMisconfigured",
    "KafkaBroker",
    "Record",
    "ServiceUnavailable",
    "Topic",
    "TopicMissing",
    "TopicSpec",
]
