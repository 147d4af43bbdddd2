"""Visits with the advertisements that came up on their page within two minutes.

Grain: one visit and one advertisement shown after it, or one visit after which none was shown. Patterns: Dynamic Joiner - two
streams are matched within a bound of time, whichever of the two came first, with a state that ends; Checkpointer - state and
positions lie beside the table, so that a run goes on where the last one ended, killed or not.

A visit comes out when its two minutes are behind the watermark: half an hour behind the newest time that visits or ads have
told, whichever are behind, and never more than two and a half hours behind the other. Where no ad is ever shown, visits
come out by themselves. What is later than that is in bronze, and is counted: `stream/rows_too_late`.
"""

from datetime import timedelta

import dagster as dg
from pyspark.sql import DataFrame

from de_assets.automation.conditions import gated
from de_assets.contracts.ads import WITHIN_MINUTES, VisitsWithAds
from de_assets.dataset import dataset
from de_assets.silver.visits_live import RULE, VISITS_STREAM
from de_assets.transforms.data_value.dynamic_joiner import StreamSide, TimeBound, join_streams
from de_checks.contract import contract_check
from de_checks.keys import unique_key_check
from de_resources.contract import Contract
from de_resources.delta.read_versions import record_read
from de_resources.delta.table import Table, TableMissing
from de_resources.lake import Lake
from de_resources.lineage.inputs import read_as
from de_resources.retries import RETRY_TRANSIENT
from de_resources.spark import SparkEngine

ADS_STREAM = dg.AssetKey(["bronze", "ads_stream"])
BOUND = TimeBound(
    within=timedelta(minutes=WITHIN_MINUTES),
    # As long as a visit may be late and still count as on time.
    late=RULE.lateness.allowed,
    # Two tables that are filled once an hour each may be an hour apart, and an hour more while one is tried again.
    idle_after=timedelta(hours=2),
    skew=RULE.lateness.skew,
)
_OF_ADS = {"showing_id": "showing_id", "shown_at": "shown_at", "ad": "ad", "page": "ad_page", "append_time": "ad_taken"}


@dg.asset(
    retry_policy=RETRY_TRANSIENT,
    **dataset(VisitsWithAds, patterns=["dynamic_joiner", "checkpointer"], mode="append"),
    deps=[VISITS_STREAM, ADS_STREAM],
    automation_condition=gated(),
)
def visits_with_ads(context: dg.AssetExecutionContext, lake: Lake, spark: SparkEngine) -> DataFrame:
    """A streaming frame over what the broker brought of both; the IO manager runs it until it has read what was there.

    Raises `TableMissing`.
    """
    sources = {key: lake.table(key) for key in (VISITS_STREAM, ADS_STREAM)}
    record_read(context, *sources.values())
    visits, ads = (_stream(key, table, spark) for key, table in sources.items())
    return with_ads(visits.where(RULE.understood), ads.where("error IS NULL"))


def with_ads(visits: DataFrame, ads: DataFrame) -> DataFrame:
    """The columns of silver.visits_with_ads, of streams of what was understood in bronze."""
    columns = Contract.of(VisitsWithAds).column_names
    own = [column for column in columns if column not in _OF_ADS or column == "page"]
    left = StreamSide(visits.select(*own, "append_time"), "event_time", "visit_id", "append_time")
    shown = ads.select(*_OF_ADS).withColumnsRenamed(_OF_ADS)
    right = StreamSide(shown, "shown_at", "showing_id", "ad_taken")
    return join_streams(left, right, ("page", "ad_page"), BOUND).select(*columns)


def _stream(key: dg.AssetKey, table: Table, spark: SparkEngine) -> DataFrame:
    """What was added to a table since the last run."""
    if table.log() is None:
        raise TableMissing(table.name)
    return read_as(spark.spark_session.readStream.format("delta").load(table.uri), key)


checks = [contract_check(visits_with_ads, blocking=False), unique_key_check(visits_with_ads, blocking=False)]
