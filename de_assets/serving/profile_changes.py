"""Where registered users live, change by change, in the topic `profile_changes`, for who writes to them.

Grain: one change of one user. Pattern: FIFO Orderer - who moved twice must not end where they lived in between: the records of
a user arrive in the order of the changes, also when sends fail. What was sent is in the outbox beside the view
`serving.profile_changes`; after a crash some records may come twice, and a reader knows them by their `sequence`.
"""

import dagster as dg
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from de_assets.automation.conditions import gated
from de_assets.contracts.serving import ProfileChanges
from de_assets.dataset import served
from de_assets.sources.topics import PROFILE_CHANGES
from de_checks.delivery import delivery_check
from de_resources.contract import Contract
from de_resources.delivery.feed import FeedDecision, run_feed
from de_resources.delivery.outbox import FeedRow, Outbox
from de_resources.delivery.topic_sender import TopicSender
from de_resources.delta.read_versions import versions_read
from de_resources.engine.utc_rows import utc_rows
from de_resources.kafka import KafkaBroker
from de_resources.lineage.record import lineage_of_output
from de_resources.postgres import PostgresDatabase
from de_resources.retries import RETRY_TRANSIENT

CONTRACT = Contract.of(ProfileChanges)
ALL = "all"
"""The one slice: users have no partitions."""


@dg.asset(
    retry_policy=RETRY_TRANSIENT,
    **{**served(ProfileChanges, kind="postgres", patterns=["fifo_orderer"]), "kinds": {"postgres", "kafka"}},
    ins={"users": dg.AssetIn(["silver", "users"])},
    automation_condition=gated(),
)
def profile_changes(
    context: dg.AssetExecutionContext,
    config: FeedDecision,
    users: DataFrame,
    database: PostgresDatabase,
    broker: KafkaBroker,
) -> dg.MaterializeResult[None]:
    """Plan the changes that are new, and send all that waits."""
    told = changes_of(users)
    rows = [
        FeedRow(row["user_id"], row["changed_at"].isoformat(timespec="microseconds"), row) for row in utc_rows(told)
    ]
    with TopicSender(broker.client_config(), PROFILE_CHANGES) as sender:
        outbox = Outbox(database, CONTRACT)
        done = run_feed(outbox, {ALL: rows}, sender.pipelined, context.run.run_id, release=config.release)
    return dg.MaterializeResult(
        metadata={
            "topic": PROFILE_CHANGES,
            "dagster/row_count": len(rows),
            **done.metadata(ALL),
            **lineage_of_output(context, told),
            **versions_read(context),
            **database.description(),
        }
    )


def changes_of(users: DataFrame) -> DataFrame:
    """What begins with each version of a user, and what ends with the last one of a user who is gone."""
    begun = users.select(
        "user_id", F.col("valid_from").alias("changed_at"), "country", F.lit(False).alias("is_deleted")
    )
    ended = users.where(F.col("valid_to").isNotNull()).select("user_id", F.col("valid_to").alias("changed_at"))
    gone = ended.join(begun, ["user_id", "changed_at"], "left_anti")
    deleted = gone.withColumns({"country": F.lit(None).cast("string"), "is_deleted": F.lit(True)})
    return begun.unionByName(deleted).select(*CONTRACT.column_names)


checks = [delivery_check(profile_changes, patterns=["fifo_orderer"])]
