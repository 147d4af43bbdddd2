"""What a consumer group has committed. Groups here never have members: they are where positions are kept, and no more."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

SECONDS = 15.0
# A broker that has just started is still choosing who keeps the group's offsets.
_ELECTING = (KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.COORDINATOR_LOAD_IN_PROGRESS)


def group_client(client_config: Mapping[str, str], group: str) -> Consumer:
    """A client that commits and asks in the name of the group, and never joins it. To be closed."""
    return Consumer({**client_config, "group.id": group, "enable.auto.commit": False, "log_level": 0})


def committed(client: Consumer, places: list[TopicPartition]) -> list[TopicPartition]:
    """What the client's group has committed for these places, once the broker knows who keeps it. Raises Kafka's errors."""
    from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_fixed

    again = Retrying(
        retry=retry_if_exception(_is_electing), wait=wait_fixed(0.1), stop=stop_after_delay(SECONDS), reraise=True
    )
    found: list[TopicPartition] = again(client.committed, places, timeout=SECONDS)
    return found


def _is_electing(error: BaseException) -> bool:
    return isinstance(error, KafkaException) and error.args[0].code() in _ELECTING
