"""Advertisements from the broker: everything that was published since the last run, understood or not.

Grain: one broker record. Pattern: Checkpointer - the engine's checkpoint lies beside the table, so that an increment starts
where the last one ended; Dead-Letter in its annotating form - a record that cannot be understood stays, with the reason.
"""

import dagster as dg
from pyspark.sql import DataFrame

from de_assets.automation.triggers.polling import poll, unread_by_stream
from de_assets.contracts.ads import AdsStream
from de_assets.dataset import dataset, reads
from de_assets.partitions import calendar_end
from de_assets.sources.systems import ADS_TOPIC
from de_assets.sources.topics import ADS
from de_assets.transforms.error_management.ad_parser import parse_ads
from de_checks.contract import contract_check
from de_checks.freshness import TopicRecords, flow_check
from de_resources.contract import Contract
from de_resources.delta.observed_frame import ObservedFrame
from de_resources.kafka import KafkaBroker
from de_resources.kafka.stream import placed, topic_stream
from de_resources.lineage.inputs import read_as
from de_resources.retries import RETRY_TRANSIENT
from de_resources.spark import SparkEngine


@dg.asset(
    retry_policy=RETRY_TRANSIENT,
    **dataset(AdsStream, patterns=["checkpointer"], mode="append", **reads(ADS, "stream")),
    deps=[ADS_TOPIC],
)
def ads_stream(broker: KafkaBroker, spark: SparkEngine) -> ObservedFrame:
    """A streaming frame over the topic; the IO manager runs it until it has read what was there."""
    stream = topic_stream(spark.spark_session, broker, ADS)
    return ObservedFrame(understood_or_explained(read_as(stream.records, ADS_TOPIC)), dict, follows=stream.source)


def understood_or_explained(records: DataFrame) -> DataFrame:
    """Broker records in the columns of bronze.ads_stream."""
    return parse_ads(placed(records), "payload").select(*Contract.of(AdsStream).column_names)


checks = [
    contract_check(ads_stream, blocking=False),
    flow_check(
        dg.AssetSpec(ADS_TOPIC),
        TopicRecords(ADS),
        name="records_keep_coming",
        promise=Contract.of(AdsStream).freshness,
        ends=calendar_end,
    ),
]
polls = [poll(ads_stream, "*/5 * * * *", unread_by_stream(ads_stream, ADS), resources=["broker", "lake"])]
