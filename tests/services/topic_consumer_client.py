"""A consumer that adds each record's value as a row to a table, which is not idempotent, and counts nothing by itself."""

from __future__ import annotations

from functools import partial

from psycopg2.sql import SQL, Identifier

from de_resources.kafka import KafkaBroker
from de_resources.kafka.append_log import AppendLog
from de_resources.kafka.checkpoints import GroupCheckpoints, TableCheckpoints
from de_resources.kafka.consumer import Consumed, DeliveryGuarantee, Increment, consume
from de_resources.kafka.increments import to_the_end
from de_resources.postgres import PostgresDatabase

AT_MOST = 5


def run(topic: str, schema: str, delivery: DeliveryGuarantee) -> Consumed:
    """Consume to the end, at most five records of each partition at once."""
    log, database = AppendLog(KafkaBroker().client_config(), topic), PostgresDatabase()
    in_table = TableCheckpoints(database, schema, "client", topic)
    positions = in_table if delivery is DeliveryGuarantee.WITH_THE_WRITE else GroupCheckpoints(log, f"client-{topic}")

    def write(increment: Increment) -> None:
        with database.connect() as session, session.cursor() as cursor:
            for record in log.records(increment.start, increment.end.offsets):
                into = SQL("INSERT INTO {} (value) VALUES (%s)").format(Identifier(schema, "received"))
                cursor.execute(into, ((record.value or b"").decode(),))
            if delivery is DeliveryGuarantee.WITH_THE_WRITE:
                in_table.commit_with(cursor, increment.end, increment.before)

    return consume(topic, positions, partial(to_the_end, log, at_most=AT_MOST), write, delivery)


def main(topic: str, schema: str, delivery: str) -> None:
    """In a process of its own; DE_KILL_AT ends it at a crash point."""
    run(topic, schema, DeliveryGuarantee[delivery])
