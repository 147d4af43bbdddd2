"""Topics: the broker, records by place and time, exactly-once writers, consumers that keep their own positions."""

from de_resources.kafka.broker import START_IT, BrokerMisconfigured, KafkaBroker, ServiceUnavailable, TopicSpec

__all__ = ["START_IT", "BrokerMisconfigured", "KafkaBroker", "ServiceUnavailable", "TopicSpec"]
