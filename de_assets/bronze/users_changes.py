"""Changes of the table of users: everything that the capture relayed since the last run, understood or not.

Grain: one record of the topic. Pattern: Change Data Capture - the service `capture` reads the database's log, this asset the
topic, committed records only. An increment starts where the last one ended; the checkpoint lies beside the table.
"""

from datetime import timedelta

import dagster as dg
from pyspark.sql import DataFrame

from de_assets.automation.triggers.polling import poll, unread_by_stream
from de_assets.contracts.users import UsersChanges
from de_assets.dataset import dataset, reads
from de_assets.sources.capture import USERS_CAPTURE
from de_assets.sources.systems import USERS_TOPIC
from de_assets.sources.topics import USERS
from de_assets.transforms.data_ingestion.change_data_capture import parse_changes
from de_checks.capture import capture_check, understood_check
from de_checks.contract import contract_check
from de_checks.freshness import heartbeat_check
from de_checks.lag import capture_lag_check, delay_check
from de_resources.capture.source import heart_of
from de_resources.contract import Contract
from de_resources.delta.observed_frame import ObservedFrame
from de_resources.kafka import KafkaBroker
from de_resources.kafka.stream import placed, topic_stream
from de_resources.lineage.inputs import read_as
from de_resources.retries import RETRY_TRANSIENT
from de_resources.spark import SparkEngine

ATTRIBUTES = ("login", "email", "country")


@dg.asset(
    retry_policy=RETRY_TRANSIENT,
    **dataset(UsersChanges, patterns=["change_data_capture"], mode="append", **reads(USERS, "stream")),
    deps=[USERS_TOPIC],
)
def users_changes(broker: KafkaBroker, spark: SparkEngine) -> ObservedFrame:
    """A streaming frame over the topic; the IO manager runs it until it has read what was there."""
    stream = topic_stream(spark.spark_session, broker, USERS)
    return ObservedFrame(understood_or_explained(read_as(stream.records, USERS_TOPIC)), dict, follows=stream.source)


def understood_or_explained(records: DataFrame) -> DataFrame:
    """Broker records in the columns of bronze.users_changes."""
    changes = parse_changes(
        placed(records), "payload", key="id", columns=ATTRIBUTES, stamp="updated_at", append_time="append_time"
    )
    return changes.withColumnRenamed("id", "user_id").select(*Contract.of(UsersChanges).column_names)


checks = [
    contract_check(users_changes, blocking=False),
    delay_check(users_changes, column="delay_ms", since="append_time", median=timedelta(seconds=30)),
    capture_check(users_changes, USERS_CAPTURE),
    capture_lag_check(users_changes, USERS_CAPTURE),
    # Users may change nothing for a day: that the relay lives is told by its heart.
    heartbeat_check(dg.AssetSpec(USERS_TOPIC), [heart_of(USERS_CAPTURE)]),
    understood_check(
        users_changes,
        error="error",
        emptied="operation = 't'",
        since="append_time",
        remedy="When table and contract agree again, run the job `capture_anew`: the capture begins with a snapshot, which "
        "makes up for what was left out.",
    ),
]
polls = [poll(users_changes, "*/5 * * * *", unread_by_stream(users_changes, USERS), resources=["broker", "lake"])]
