"""How often each page was viewed in each hour, sent to the partner who embeds the blog's articles.

Grain: one page and hour. Pattern: Bin Pack Orderer - the partner takes batches, and may take a part of one; a page's hours
arrive in their order all the same. What was sent is in the outbox beside the view `serving.partner_feed`, so that a rerun sends
what is new and nothing else, and an hour that a late visit changes is sent again.
"""

from functools import partial

import dagster as dg
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from de_assets.automation.conditions import late_cascade
from de_assets.contracts.serving import PartnerFeed
from de_assets.dataset import served
from de_assets.partitions import daily, hours_of_day
from de_checks.delivery import delivery_check
from de_resources.contract import Contract
from de_resources.delivery.bin_pack_orderer import deliver
from de_resources.delivery.feed import FeedDecision, run_feed
from de_resources.delivery.outbox import FeedRow, Outbox
from de_resources.delivery.receiver import BulkReceiver
from de_resources.engine.utc_rows import utc_rows
from de_resources.held_back import own_keys
from de_resources.lineage.record import lineage_of_output
from de_resources.postgres import PostgresDatabase
from de_resources.retries import RETRY_TRANSIENT

CONTRACT = Contract.of(PartnerFeed)


@dg.asset(
    retry_policy=RETRY_TRANSIENT,
    **{
        **served(PartnerFeed, kind="postgres", patterns=["bin_pack_orderer"], partition="event_date"),
        "kinds": {"postgres", "rest"},
    },
    ins={"visits": dg.AssetIn(["silver", "visits_enriched"], partition_mapping=hours_of_day)},
    partitions_def=daily,
    automation_condition=late_cascade(),
    backfill_policy=dg.BackfillPolicy.single_run(),
)
def partner_feed(
    context: dg.AssetExecutionContext,
    config: FeedDecision,
    visits: DataFrame,
    database: PostgresDatabase,
    partner: BulkReceiver,
) -> dg.MaterializeResult[None]:
    """Plan what is new in the run's days, in their order, and send all that waits."""
    told = hours_of_pages(visits)
    rows = {key: list[FeedRow]() for key in own_keys(context)}
    for row in utc_rows(told):
        rows[str(row["event_date"])].append(FeedRow(row["page"], row["hour"].isoformat(), row))

    with partner.open() as connection:
        in_bins = partial(deliver, send=connection.send, limits=connection.limits())
        done = run_feed(Outbox(database, CONTRACT), rows, in_bins, context.run.run_id, release=config.release)
    for key in rows:
        counts = {"dagster/partition_row_count": len(rows[key]), **done.metadata(key)}
        context.add_asset_metadata(counts, context.asset_key, key)
    return dg.MaterializeResult(
        metadata={**lineage_of_output(context, told), **database.description(), **partner.description()}
    )


def hours_of_pages(visits: DataFrame) -> DataFrame:
    """Views and visitors of each page and hour, without robots."""
    people = visits.where(~F.coalesce(F.col("is_bot"), F.lit(False)))
    counted = people.groupBy("page", F.col("event_hour").alias("hour")).agg(
        F.count(F.lit(1)).alias("views"), F.count_distinct("user_id").alias("visitors")
    )
    return counted.withColumn("event_date", F.to_date("hour")).select(*CONTRACT.column_names)


checks = [delivery_check(partner_feed, patterns=["bin_pack_orderer"])]
