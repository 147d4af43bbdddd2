"""Visits from the broker: everything that was published since the last run, understood or not.

Grain: one broker record. Pattern: Checkpointer - the engine's checkpoint lies beside the table, so that an increment starts
where the last one ended; Dead-Letter in its annotating form - a record that cannot be understood stays, with the reason,
until it is set apart with what was judged (`silver/visits_live_dead_letter`).
"""

import dagster as dg
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from de_assets.contracts.visits import VisitsStream
from de_assets.dataset import dataset
from de_assets.sources.systems import VISITS_TOPIC
from de_assets.sources.topics import VISITS
from de_assets.transforms.error_management.visit_parser import ERROR, parse_visits
from de_checks.contract import contract_check
from de_resources.contract import Contract
from de_resources.delta.observed_frame import ObservedFrame
from de_resources.kafka import KafkaBroker
from de_resources.kafka.stream import placed, topic_stream
from de_resources.retries import RETRY_TRANSIENT
from de_resources.spark import SparkEngine


@dg.asset(retry_policy=RETRY_TRANSIENT, **dataset(VisitsStream, mode="append"), deps=[VISITS_TOPIC])
def visits_stream(broker: KafkaBroker, spark: SparkEngine) -> ObservedFrame:
    """A streaming frame over the topic; the IO manager runs it until it has read what was there."""
    stream = topic_stream(spark.spark_session, broker, VISITS)
    return ObservedFrame(understood_or_explained(stream.records), dict, follows=stream.source)


def understood_or_explained(records: DataFrame) -> DataFrame:
    """Broker records in the columns of bronze.visits_stream."""
    taken = placed(records)
    parsed = parse_visits(taken, "payload")
    # What was rejected keeps no half of its columns: a value beside an error looks like data.
    own = [*taken.columns, ERROR]
    columns = Contract.of(VisitsStream).column_names
    valid = F.col(ERROR).isNull()
    return parsed.select(*(F.col(c) if c in own else F.when(valid, F.col(c)).alias(c) for c in columns))


checks = [contract_check(visits_stream, blocking=False)]
