"""Topics of a broker, as the code that owns them declares them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from de_resources.errors import TransientError

ADMIN_SECONDS = 15.0


@dataclass(frozen=True)
class TopicSpec:
    """A topic: name, number of partitions, and the broker's settings for it, e.g. `message.timestamp.type`."""

    name: str
    partitions: int = 1
    config: Mapping[str, str] = field(default_factory=dict)


class TopicNotCreated(TransientError):
    """The broker did not create a topic."""

    def __init__(self, topic: str, reason: str) -> None:
        self.topic = topic
        self.reason = reason
        super().__init__(f"Topic `{topic}` was not created ({reason}): check its settings and `de status`, try again.")


def create_topics(client_config: Mapping[str, str], topics: Iterable[TopicSpec]) -> list[str]:
    """Create the topics that are not there yet and return their names; existing ones stay as they are.

    Raises:
        TopicNotCreated: the broker refused, or did not answer in time.
    """
    wanted = [NewTopic(t.name, num_partitions=t.partitions, config=dict(t.config)) for t in topics]
    if not wanted:
        return []
    # Held in a variable: a client that is collected cancels what it was asked.
    client = AdminClient({**client_config})
    answers = client.create_topics(wanted, operation_timeout=ADMIN_SECONDS)
    return [name for name, future in answers.items() if _was_created(name, future)]


def _was_created(name: str, future: Future[None]) -> bool:
    try:
        future.result(timeout=ADMIN_SECONDS)
    except KafkaException as refusal:
        if refusal.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
            return False
        raise TopicNotCreated(name, refusal.args[0].str()) from refusal
    return True
