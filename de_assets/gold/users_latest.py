"""The users of the newest day that has a snapshot, without anything personal: a view, which stores no data.

Grain: one user. Pattern: Proxy - a virtual asset. Whoever reads it reads the live version of gold.users_snapshot, so that a
switch, or the way back, needs no run here.
"""

import dagster as dg

from de_assets.automation.conditions import computed_once
from de_assets.contracts.users import UsersLatest
from de_assets.dataset import dataset
from de_assets.gold.users_snapshot import users_snapshot
from de_resources.contract import Contract
from de_resources.proxy.catalogue_view import NewestPartition
from de_resources.retries import RETRY_TRANSIENT


@dg.asset(
    retry_policy=RETRY_TRANSIENT,
    **{**dataset(UsersLatest, patterns=["proxy"], io_manager="view_io_manager"), "kinds": {"view"}},
    deps=[dg.AssetDep(users_snapshot, partition_mapping=dg.LastPartitionMapping())],
    automation_condition=computed_once(),
    is_virtual=True,
)
def users_latest() -> NewestPartition:
    """The definition; it is stored once, and again when somebody changed it."""
    return NewestPartition(users_snapshot.key.to_user_string(), Contract.of(UsersLatest).column_names)
