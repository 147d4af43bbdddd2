"""Sessions of a day.

Grain: one session of one user; a session that spans midnight counts on both days. Pattern: Online Observer - the write
measures its columns, so that a change of durations or of the number of pages shows in a plot.
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
from de_checks.usual_figures import usual_figures_check
from de_checks.volume import volume_check
from de_resources.contract import Contract
from de_resources.observers import ONLINE_OBSERVER
from de_resources.retries import RETRY_TRANSIENT


@dg.asset(
    retry_policy=RETRY_TRANSIENT,
    **dataset(Sessions, patterns=["online_observer"], partition="event_date", **ONLINE_OBSERVER),
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
    usual_figures_check(sessions, ["duration_seconds/median", "visits/median", "first_page/nulls"]),
    unique_key_check(sessions),
    # A day of a small blog may be of any size, down to none: a change of magnitude is news, and no reason to stop.
    volume_check(
        sessions, tolerance=(0.2, 5.0), min_rows=0, events=True, whole=is_whole, severity=dg.AssetCheckSeverity.WARN
    ),
]
