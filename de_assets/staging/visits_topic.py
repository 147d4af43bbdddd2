"""The topic `visits` in another topic, on another broker where one is configured (resource `staging_broker`).

Grain: one broker record. Pattern: Passthrough Replicator (topic) - key, value, headers, timestamp, partition and the order
within each partition are the source's, each record is there once.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import dagster as dg

from de_assets.automation.triggers.polling import behind, poll
from de_assets.contracts.visits import OWNER
from de_assets.dataset import reads
from de_assets.sources.systems import VISITS_TOPIC
from de_assets.sources.topics import STAGING_VISITS, VISITS
from de_assets.staging.replica import replica
from de_checks.digest import Digests, digest_check
from de_resources.kafka import KafkaBroker
from de_resources.kafka.topic import Topic
from de_resources.lineage.record import copied_columns
from de_resources.replication.topic import replicate_topic, replicated_to
from de_resources.replication.topic_digest import topic_digests
from de_resources.retries import RETRY_TRANSIENT

POSITIONS = "topic/positions"


@dg.asset(
    retry_policy=RETRY_TRANSIENT,
    **replica("visits_topic", owner=OWNER, kind="kafka", patterns=["passthrough_replicator"]),
    deps=[VISITS_TOPIC],
    metadata=reads(VISITS, f"replica {STAGING_VISITS}"),
)
def visits_topic(broker: KafkaBroker, staging_broker: KafkaBroker) -> dg.MaterializeResult[None]:
    """Continue the replica from where the last run committed to the present end of the topic."""
    for each in (broker, staging_broker):
        each.check()  # a broker that is away is said at once, not after the clients' own time-outs
    done = replicate_topic(*sides(broker, staging_broker))
    return dg.MaterializeResult(
        metadata={
            "topic": STAGING_VISITS,
            "records_copied": done.records,
            "transactions": done.batches,
            "topic/source": f"id {done.source}" + (", adopted: the positions did not say it" if done.adopted else ""),
            **copied_columns(["key", "value", "headers"], VISITS_TOPIC),
            POSITIONS: dg.MetadataValue.json({str(p): offset for p, offset in done.positions.items()}),
        },
    )


def sides(broker: KafkaBroker, staging_broker: KafkaBroker) -> tuple[Topic, Topic]:
    """Source and replica."""
    return Topic(broker.client_config(), VISITS), Topic(staging_broker.client_config(), STAGING_VISITS)


def _both_sides(resources: Any, metadata: Mapping[str, Any]) -> tuple[Digests, Digests]:
    positions = {int(p): offset for p, offset in metadata[POSITIONS].items()}
    return topic_digests(*sides(resources.broker, resources.staging_broker), positions)


def _to_copy(context: dg.ScheduleEvaluationContext) -> str | None:
    resources: Any = context.resources
    source, target = sides(resources.broker, resources.staging_broker)
    return behind(source, replicated_to(source, target).offsets)


checks = [digest_check(visits_topic, _both_sides, resources={"broker", "staging_broker"})]
polls = [
    poll(
        visits_topic,
        "0 * * * *",
        _to_copy,
        resources=["broker", "staging_broker"],
        # The replica's broker forgets positions after a week without a commit.
        renewed_after=timedelta(days=3),
    )
]
