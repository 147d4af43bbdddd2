"""Visits from the broker: everything that was published since the last run, understood or not.

Grain: one broker record. Pattern: Checkpointer - the engine's checkpoint lies beside the table, so that an increment starts
where the last one ended; Dead-Letter in its annotating form - a record that cannot be understood stays, with the reason,
until it is set apart with what was judged (`silver/visits_live_dead_letter`); Online Observer - what came with the increment
is measured micro-batch by micro-batch, so that a producer that stops filling a field shows in a plot.
"""

import dagster as dg
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from de_assets.automation.triggers.polling import poll, unread_by_stream
from de_assets.contracts.visits import VisitsStream
from de_assets.dataset import dataset, reads
from de_assets.partitions import calendar_end
from de_assets.sources.systems import VISITS_TOPIC
from de_assets.sources.topics import VISITS
from de_assets.transforms.error_management.visit_parser import ERROR, parse_visits
from de_checks.contract import contract_check
from de_checks.freshness import TopicRecords, flow_check
from de_checks.topic_skew import topic_skew_check
from de_checks.topic_volume import topic_volume_check
from de_resources.contract import Contract
from de_resources.delta.observed_frame import ObservedFrame
from de_resources.kafka import KafkaBroker
from de_resources.kafka.stream import placed, topic_stream
from de_resources.lineage.inputs import read_as
from de_resources.observers import ONLINE_OBSERVER
from de_resources.retries import RETRY_TRANSIENT
from de_resources.spark import SparkEngine

OBSERVED = ["event_time", "page", "referral", "ad_id", "is_bot", "error", "append_time"]


@dg.asset(
    retry_policy=RETRY_TRANSIENT,
    **dataset(
        VisitsStream,
        patterns=["online_observer"],
        mode="append",
        **ONLINE_OBSERVER,
        observe={"columns": OBSERVED},
        **reads(VISITS, "stream"),
    ),
    deps=[VISITS_TOPIC],
)
def visits_stream(broker: KafkaBroker, spark: SparkEngine) -> ObservedFrame:
    """A streaming frame over the topic; the IO manager runs it until it has read what was there."""
    stream = topic_stream(spark.spark_session, broker, VISITS)
    return ObservedFrame(understood_or_explained(read_as(stream.records, VISITS_TOPIC)), dict, follows=stream.source)


def understood_or_explained(records: DataFrame) -> DataFrame:
    """Broker records in the columns of bronze.visits_stream."""
    taken = placed(records)
    parsed = parse_visits(taken, "payload")
    # What was rejected keeps no half of its columns: a value beside an error looks like data.
    own = [*taken.columns, ERROR]
    columns = Contract.of(VisitsStream).column_names
    valid = F.col(ERROR).isNull()
    return parsed.select(*(F.col(c) if c in own else F.when(valid, F.col(c)).alias(c) for c in columns))


_TOPIC = dg.AssetSpec(VISITS_TOPIC)

checks = [
    contract_check(visits_stream, blocking=False),
    flow_check(
        _TOPIC,
        TopicRecords(VISITS),
        name="records_keep_coming",
        promise=Contract.of(VisitsStream).freshness,
        ends=calendar_end,
    ),
    # Records go to partitions by their key: one that gets a third more or less has a key that stands for everybody.
    topic_skew_check(_TOPIC, VISITS, max_deviation=0.5),
    # A Saturday has fewer visits than its Friday, and a Monday more than its Sunday.
    topic_volume_check(_TOPIC, VISITS, tolerance=(0.3, 3.5)),
]
polls = [poll(visits_stream, "*/5 * * * *", unread_by_stream(visits_stream, VISITS), resources=["broker", "lake"])]
