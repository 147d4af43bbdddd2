"""What a consumer group has committed. Groups here never have members: they are where positions are kept, and no more."""

from __future__ import annotations

import time
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
    deadline = time.monotonic() + SECONDS
    while True:
        try:
            return client.committed(places, timeout=SECONDS)
        except KafkaException as error:
            if error.args[0].code() not in _ELECTING or time.monotonic() > deadline:
                raise
            time.sleep(0.1)
