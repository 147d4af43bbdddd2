"""Sessions of a day.

Grain: one session of one user; a session that spans midnight counts on both days.
"""

import dagster as dg
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from de_assets.automation.conditions import late_cascade
from de_assets.contracts.traffic import Sessions
from de_assets.dataset import dataset
from de_assets.partitions import daily, hours_of_day, is_whole
from de_assets.transforms.data_value import sessionizer
from de_checks.contract import contract_check
from de_checks.keys import unique_key_check
from de_checks.volume import volume_check
from de_resources.contract import Contract
from de_resources.retries import RETRY_TRANSIENT


@dg.asset(
    retry_policy=RETRY_TRANSIENT,
    **dataset(Sessions, partition="event_date"),
    ins={"visits": dg.AssetIn(["silver", "visits_enriched"], partition_mapping=hours_of_day)},
    partitions_def=daily,
    automation_condition=late_cascade(),
    backfill_policy=dg.BackfillPolicy.single_run(),
)
def sessions(visits: DataFrame) -> DataFrame:
    """Sessions within each day of the run."""
    dated = visits.withColumn("event_date", F.to_date("event_time"))
    found = sessionizer.sessions(dated, ["user_id", "event_date"], "event_time", tie="visit_id", page="page")
    return found.select(*Contract.of(Sessions).column_names)


checks = [
    contract_check(sessions),
    unique_key_check(sessions),
    # A day of a small blog may be of any size, down to none: a change of magnitude is news, and no reason to stop.
    volume_check(
        sessions, tolerance=(0.2, 5.0), min_rows=0, events=True, whole=is_whole, severity=dg.AssetCheckSeverity.WARN
    ),
]
