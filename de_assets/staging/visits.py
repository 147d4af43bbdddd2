"""The valid visits without what identifies their visitors, hour by hour.

Grain: one page view. Partition: the hour of the event, as at the source. Pattern: Transformation Replicator - the source's
contract says which columns may leave, and a column that it does not have stops the run.
"""

import dagster as dg
from pyspark.sql import DataFrame

from de_assets.automation.conditions import late_cascade
from de_assets.contracts.staging import StagingVisits
from de_assets.contracts.visits import Visits
from de_assets.dataset import dataset
from de_assets.partitions import hourly
from de_checks.keys import unique_key_check
from de_checks.privacy import privacy_check
from de_resources.contract import Contract
from de_resources.replication.allow_list import allowed
from de_resources.retries import RETRY_TRANSIENT


@dg.asset(
    retry_policy=RETRY_TRANSIENT,
    **dataset(
        StagingVisits, patterns=["transformation_replicator"], partition="event_hour", io_manager="staging_io_manager"
    ),
    ins={"source": dg.AssetIn(["silver", "visits"])},
    partitions_def=hourly,
    automation_condition=late_cascade(),
    backfill_policy=dg.BackfillPolicy.single_run(),
)
def visits(source: DataFrame) -> DataFrame:
    """The columns that may leave, of the run's hours."""
    return allowed(source, Contract.of(Visits))


checks = [privacy_check(visits, Visits, lake="staging_lake"), unique_key_check(visits, lake="staging_lake")]
