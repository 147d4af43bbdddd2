"""A process that fills `gold.sessions_live` from a topic up to a time, and that dies where DE_KILL_AT says.

The gap is ten seconds, and nothing has to settle.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from de_assets.gold.sessions_live import Totals, fill
from de_resources.kafka import KafkaBroker
from de_resources.kafka.append_log import AppendLog
from de_resources.kafka.consumer import Consumed
from de_resources.kafka.topic import from_milliseconds
from de_resources.postgres import PostgresDatabase
from de_resources.spark import SparkEngine, close_connections

GAP = timedelta(seconds=10)


def run(topic: str, now: datetime, *, at_most: int = 1000) -> tuple[Totals, Consumed]:
    """In this process."""
    broker = KafkaBroker()
    log = AppendLog(broker.client_config(), topic)
    session = SparkEngine().spark_session
    return fill(session, broker, log, PostgresDatabase(), now, gap=GAP, settle=timedelta(0), at_most=at_most)


def main(topic: str, milliseconds: int) -> None:
    """In a process of its own."""
    run(topic, from_milliseconds(milliseconds))
    close_connections()
