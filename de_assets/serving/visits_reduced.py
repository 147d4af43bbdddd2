"""Valid visits of the topic `visits` in the topic `visits_reduced`, for who follows them as they come.

Grain: one record that could be understood. Pattern: Transactional Writer - each micro-batch is a transaction per output
partition, so that a reader of committed records sees each visit once, whatever was killed in between. Which records were
not understood, and why, is in bronze.visits_stream.
Pattern: Metadata Decorator - who wrote a record is in its headers, and not in its value.
"""

import dagster as dg
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from de_assets import __version__
from de_assets.automation.triggers.polling import poll, unread_by_stream
from de_assets.contracts.serving import VisitsReduced
from de_assets.dataset import reads, served
from de_assets.sources.systems import VISITS_TOPIC
from de_assets.sources.topics import VISITS, VISITS_REDUCED
from de_assets.transforms.error_management.visit_parser import ERROR, parse_visits
from de_resources.contract import Contract
from de_resources.delta.write.stream import CHECKPOINT
from de_resources.kafka import KafkaBroker
from de_resources.kafka.output import TopicOutput
from de_resources.kafka.sink import write_available_now
from de_resources.kafka.stream import topic_stream
from de_resources.lake import Lake
from de_resources.lineage.inputs import read_as
from de_resources.lineage.record import lineage_of_output
from de_resources.metadata_decorator import WriteContext
from de_resources.retries import RETRY_TRANSIENT
from de_resources.spark import SparkEngine

# A micro-batch of it is a few megabytes.
AT_MOST = 10_000


@dg.asset(
    retry_policy=RETRY_TRANSIENT,
    **served(
        VisitsReduced,
        kind="kafka",
        patterns=["transactional_writer", "checkpointer", "metadata_decorator"],
        # It reads the topic; where a record of that is kept as a row, with its place, is here.
        row_lineage={
            "bronze/visits_stream": "s.visit_id = o.visit_id AND s.event_time = o.event_time AND s.user_id = o.user_id "
            "AND s.page = o.page"
        },
        **reads(VISITS, "stream"),
    ),
    deps=[VISITS_TOPIC],
)
def visits_reduced(
    context: dg.AssetExecutionContext, broker: KafkaBroker, spark: SparkEngine, lake: Lake
) -> dg.MaterializeResult[None]:
    """Write what was published since the last run, and stop."""
    session = spark.spark_session
    visits = topic_stream(session, broker, VISITS, at_most=AT_MOST)
    output = TopicOutput(broker.client_config(), VISITS_REDUCED, "visits_reduced")
    checkpoint = f"{lake.table(context.asset_key).uri}/{CHECKPOINT}"
    reduced = understood(read_as(visits.records, VISITS_TOPIC))
    by = WriteContext.of(context, Contract.of(VisitsReduced).name, __version__)
    done = write_available_now(session, as_records(reduced), output, checkpoint, visits.source, by)
    return dg.MaterializeResult(
        metadata={
            "topic": VISITS_REDUCED,
            "records_written": done.records,
            "stream/source": done.source or "",
            "stream/batches": done.batches,
            "stream/from": done.start or "",
            "stream/to": done.end or "",
            **done.times,
            "partitions_skipped": dg.MetadataValue.json(list(done.skipped)),
            **lineage_of_output(context, reduced),
        }
    )


def understood(records: DataFrame) -> DataFrame:
    """Of the broker records that could be understood, the columns that are promised."""
    return promised(parse_visits(records.select("value"), "value"))


def promised(parsed: DataFrame) -> DataFrame:
    """Of parsed records, those that were understood, in the columns that are promised."""
    return parsed.where(F.col(ERROR).isNull()).select(*Contract.of(VisitsReduced).column_names)


def as_records(visits: DataFrame) -> DataFrame:
    """Visits as keys and values of the reduced topic."""
    return visits.select(F.col("visit_id").alias("key"), F.to_json(F.struct(*visits.columns)).alias("value"))


polls = [poll(visits_reduced, "0 * * * *", unread_by_stream(visits_reduced, VISITS), resources=["broker", "lake"])]
