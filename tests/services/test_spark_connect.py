"""The engine over Spark Connect: with the token it reads broker and database and writes Delta, without it nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import Producer
from waiting import PATIENCE

from de_resources.kafka import KafkaBroker
from de_resources.local import LocalServices, TopicSpec
from de_resources.postgres import PostgresDatabase

pytestmark = pytest.mark.services

CLIENT = Path(__file__).with_name("connect_client.py")


def test_the_engine_moves_records_from_the_broker_into_delta(at_home: LocalServices, tmp_path: Path) -> None:
    """Also the proof that the older token provider in the lock file serves the newer Kafka source."""
    broker = KafkaBroker()
    topic = f"engine-{uuid4().hex[:8]}"
    broker.ensure_topics([TopicSpec(topic, partitions=2)])
    producer = Producer(broker.client_config())
    for number in range(20):
        producer.produce(topic, value=f"value {number:02}".encode())
    assert producer.flush(PATIENCE) == 0

    endpoint = at_home.endpoint("spark_connect")
    assert endpoint is not None
    done = _run_client(at_home, tmp_path / "table", endpoint.password.get_secret_value(), topic)

    assert done.returncode == 0, done.stderr[-3000:]
    answer = json.loads(done.stdout)
    assert answer["rows"] == [f"value {number:02}" for number in range(20)]
    assert (answer["zone"], answer["role"], answer["shuffles"]) == ("UTC", "de", "2")
    assert broker.client_config()["sasl.password"] not in answer["plan"]


@pytest.mark.parametrize("token", [None, "guess"], ids=["no token", "wrong token"])
def test_a_client_without_the_token_is_refused(at_home: LocalServices, tmp_path: Path, token: str | None) -> None:
    done = _run_client(at_home, tmp_path / "table", token)

    assert done.returncode != 0
    assert "UNAUTHENTICATED" in done.stderr
    assert not (tmp_path / "table").exists()


def _run_client(
    services: LocalServices, table: Path, token: str | None, topic: str = ""
) -> subprocess.CompletedProcess[str]:
    endpoint = services.endpoint("spark_connect")
    assert endpoint is not None
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SPARK_")}
    if token:
        environment["SPARK_CONNECT_AUTHENTICATE_TOKEN"] = token
    options = {
        "topic": topic,
        "kafka": KafkaBroker().spark_options(),
        "jdbc": PostgresDatabase().jdbc_options("pg_tables"),
    }
    return subprocess.run(
        [sys.executable, str(CLIENT), f"sc://{endpoint.address}", str(table)],
        input=json.dumps(options),
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
