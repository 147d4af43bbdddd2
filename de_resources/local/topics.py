"""Topics of a broker, as the code that owns them declares them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from de_resources.errors import TransientError

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

ANSWER_SECONDS = 15.0
_LOOK_SECONDS = 0.05
PATIENCE_SECONDS = 60.0
"""A broker that was away may take connections for some time before its controller takes orders again."""


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

    When this returns, any client finds all of them: the broker that answers clients learns of a topic a moment after the
    controller that creates it, and on a busy machine that moment is long enough to be told that there is no such topic.

    Raises:
        TopicNotCreated: the broker refused, or did not answer in time, tried again meanwhile.
    """
    from confluent_kafka.admin import AdminClient, NewTopic

    topics = list(topics)
    wanted = [NewTopic(t.name, num_partitions=t.partitions, config=dict(t.config)) for t in topics]
    deadline = time.monotonic() + PATIENCE_SECONDS
    created: list[str] = []
    while wanted:
        # Held in a variable: a client that is collected cancels what it was asked.
        client = AdminClient({**client_config})
        answers = client.create_topics(wanted, operation_timeout=ANSWER_SECONDS, request_timeout=ANSWER_SECONDS)
        outcomes = {name: _outcome(name, future) for name, future in answers.items()}
        created += [name for name, outcome in outcomes.items() if outcome is True]
        wanted = [topic for topic in wanted if isinstance(outcomes[topic.topic], str)]
        if wanted and time.monotonic() > deadline:
            raise TopicNotCreated(wanted[0].topic, str(outcomes[wanted[0].topic]))
    _await_visible(AdminClient({**client_config}), {topic.name for topic in topics}, deadline)
    return created


def _await_visible(client: AdminClient, names: set[str], deadline: float) -> None:
    while hidden := names - client.list_topics(timeout=ANSWER_SECONDS).topics.keys():
        if time.monotonic() > deadline:
            raise TopicNotCreated(min(hidden), "it was created, and the broker does not show it")
        time.sleep(_LOOK_SECONDS)


def _outcome(name: str, future: Future[None]) -> bool | str:
    """Whether the topic was created (False: it was there), or what to try again for."""
    from confluent_kafka import KafkaError, KafkaException

    try:
        future.result(timeout=ANSWER_SECONDS + 1)
    except TimeoutError:
        return f"no answer within {ANSWER_SECONDS:g} s"
    except KafkaException as refusal:
        error = refusal.args[0]
        if error.code() == KafkaError.TOPIC_ALREADY_EXISTS:
            return False
        if error.retriable() or error.code() in (KafkaError._TIMED_OUT, KafkaError.REQUEST_TIMED_OUT):
            return str(error.str())
        raise TopicNotCreated(name, error.str()) from refusal
    return True
