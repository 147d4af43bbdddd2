"""What a lake leaves outside of itself, taken away: the next one on the same services begins as the first did.

Where it does not, the platform refuses it, as it should: positions of a consumer without what it wrote are a loss.
"""

from __future__ import annotations

from confluent_kafka.admin import AdminClient
from waiting import PATIENCE

from de_assets.gold.sessions_live import CONSUMER
from de_assets.sources.topics import TOPICS, VISITS_REDUCED
from de_resources.kafka import KafkaBroker
from de_resources.kafka.output import TopicOutput
from de_resources.postgres import PostgresDatabase


def serve_nothing() -> None:
    """What the graph serves from the database is gone."""
    with PostgresDatabase().connect() as session, session.cursor() as cursor:
        cursor.execute("DROP SCHEMA IF EXISTS serving CASCADE; DROP SCHEMA IF EXISTS serving_versions CASCADE")


def reduce_nothing() -> None:
    """Nobody has written `visits_reduced` yet."""
    broker = KafkaBroker()
    broker.ensure_topics(TOPICS)
    admin = _admin(broker)
    admin.delete_topics([VISITS_REDUCED])[VISITS_REDUCED].result(PATIENCE)
    _forget(admin, TopicOutput(broker.client_config(), VISITS_REDUCED, VISITS_REDUCED).group)
    broker.ensure_topics(TOPICS)


def begin_anew() -> None:
    """Nothing is served, nothing reduced, and nobody has read live sessions."""
    serve_nothing()
    reduce_nothing()
    _forget(_admin(KafkaBroker()), CONSUMER)


def _forget(admin: AdminClient, group: str) -> None:
    if group in {each.group_id for each in admin.list_consumer_groups().result(PATIENCE).valid}:
        admin.delete_consumer_groups([group])[group].result(PATIENCE)


def _admin(broker: KafkaBroker) -> AdminClient:
    return AdminClient({**broker.client_config(), "log_level": "0"})
