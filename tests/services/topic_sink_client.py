"""A process with an engine of its own that drains a topic into another: arguments SOURCE, TOPIC, CHECKPOINT, AT_MOST.

Prints what it wrote as JSON. DE_KILL_AT ends it at a crash point.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

from de_resources.kafka import KafkaBroker
from de_resources.kafka.output import TopicOutput
from de_resources.kafka.sink import write_available_now
from de_resources.kafka.stream import topic_stream
from de_resources.spark import SparkEngine


def main(source: str, topic: str, checkpoint: str, at_most: str) -> None:
    """Drain."""
    session, broker = SparkEngine(url="local[1]").spark_session, KafkaBroker()
    stream = topic_stream(session, broker, source, at_most=int(at_most))
    output = TopicOutput(broker.client_config(), topic, f"test-{topic}")
    print(json.dumps(asdict(write_available_now(session, stream.records, output, checkpoint, stream.source))))


if __name__ == "__main__":
    main(*sys.argv[1:])
