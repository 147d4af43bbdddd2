"""The visitors of a day as sketches, to be merged over days.

Grain: one day and combination of country, device type and referral, as in `gold/visits_cube_daily`. Pattern: Distributed
Aggregator - the exact numbers of the days cannot be added, since who comes on two days is one visitor; these can be merged.
A table of its own: the cube is read by people, and these bytes, which stand for pseudonyms, are read by the weekly cube
only. A rerun gives sketches of the same visitors, whose bytes may stand in another order.
"""

import dagster as dg
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from de_assets.automation.conditions import late_cascade
from de_assets.contracts.traffic import VisitorSketchesDaily
from de_assets.dataset import dataset
from de_assets.gold.visits_cube_daily import CUBE_LINEAGE, DIMENSIONS
from de_assets.partitions import daily, hours_of_day
from de_assets.transforms.data_value.distributed_aggregator import cube
from de_assets.transforms.data_value.mergeable_measures import sketch_of
from de_checks.contract import MEETS_CONTRACT, contract_check
from de_checks.keys import unique_key_check
from de_resources.retries import RETRY_TRANSIENT

NEEDS = {"silver/visits_enriched": [MEETS_CONTRACT]}
"""Not that a visit is there once: a sketch of the same visitors is the same, however often they are named."""


@dg.asset(
    retry_policy=RETRY_TRANSIENT,
    **dataset(
        VisitorSketchesDaily,
        patterns=["distributed_aggregator"],
        partition="event_date",
        needs=NEEDS,
        row_lineage={"silver/visits_enriched": CUBE_LINEAGE},
    ),
    ins={"visits": dg.AssetIn(["silver", "visits_enriched"], partition_mapping=hours_of_day)},
    partitions_def=daily,
    automation_condition=late_cascade(needs=NEEDS),
    backfill_policy=dg.BackfillPolicy.single_run(),
)
def visitor_sketches_daily(visits: DataFrame) -> DataFrame:
    """Sketch the visitors of every combination."""
    dated = visits.withColumn("event_date", F.to_date("event_time"))
    return cube(dated, "event_date", DIMENSIONS, {"visitors": sketch_of(F.col("user_id"))})


checks = [contract_check(visitor_sketches_daily), unique_key_check(visitor_sketches_daily)]
