"""The users without what identifies them.

Grain: one version of one user. Pattern: Transformation Replicator - the source's contract says which columns may leave, and
a column that it does not have stops the run.
"""

import dagster as dg
from pyspark.sql import DataFrame

from de_assets.automation.conditions import gated
from de_assets.contracts.staging import StagingUsers
from de_assets.contracts.users import Users
from de_assets.dataset import dataset
from de_checks.privacy import privacy_check
from de_resources.contract import Contract
from de_resources.replication.allow_list import allowed
from de_resources.retries import RETRY_TRANSIENT


@dg.asset(
    retry_policy=RETRY_TRANSIENT,
    **dataset(StagingUsers, patterns=["transformation_replicator"], io_manager="staging_io_manager"),
    ins={"source": dg.AssetIn(["silver", "users"])},
    automation_condition=gated(),
)
def users(source: DataFrame) -> DataFrame:
    """The columns that may leave."""
    return allowed(source, Contract.of(Users))


checks = [privacy_check(users, Users, lake="staging_lake")]
