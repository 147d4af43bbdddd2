"""Which topic it is, and not only what it is called: an offset means nothing in another topic of the same name."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient


def topic_identity(client_config: Mapping[str, str], topic: str, *, timeout: float = 15.0) -> str:
    """The broker's identity of the topic, which changes when it is deleted and made anew. Raises Kafka's own errors."""
    # Held in a variable: a client that is collected cancels what it was asked.
    client = AdminClient({**client_config, "log_level": "0"})
    described = client.describe_topics(TopicCollection([topic]))[topic]
    return str(described.result(timeout=timeout).topic_id)
