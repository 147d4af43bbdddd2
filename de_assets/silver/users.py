"""All versions of every user.

Grain: one version of one user, valid in a half-open interval. Pattern: Change Data Capture - the versions follow from all
captured changes in the order of the database's log, so that a rerun gives the same rows, whatever the order and the
repetition in which they arrived;
only versions that are new or ended otherwise are merged into the table, whose change data feed others may follow.
"""

import dagster as dg
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from de_assets.automation.conditions import gated
from de_assets.bronze.users_changes import ATTRIBUTES
from de_assets.contracts.users import Users
from de_assets.dataset import dataset
from de_assets.transforms.data_ingestion.change_data_capture import in_log_order, with_truncations
from de_assets.transforms.idempotency.slowly_changing_dimension import versions
from de_checks.contract import contract_check
from de_checks.intervals import Interval, interval_check
from de_checks.volume import volume_check
from de_resources.retries import RETRY_TRANSIENT


@dg.asset(
    retry_policy=RETRY_TRANSIENT,
    **dataset(
        Users,
        patterns=["change_data_capture", "merger"],
        mode="merge",
        merge_vanished="delete",
        # The change that opened the version, and the one that closed it.
        row_lineage={
            "bronze/users_changes": "s.user_id = o.user_id AND (s.changed_at = o.valid_from OR s.changed_at = o.valid_to)"
        },
    ),
    ins={"changes": dg.AssetIn(["bronze", "users_changes"])},
    automation_condition=gated(),
)
def users(changes: DataFrame) -> DataFrame:
    """Versions from the changes that were understood."""
    return versions_of(changes)


def versions_of(changes: DataFrame) -> DataFrame:
    """The columns of silver.users, from bronze.users_changes."""
    understood = with_truncations(changes.where(F.col("error").isNull()), "user_id")
    ordered = in_log_order(understood, "user_id", "changed_at")
    deleted = F.col("operation") == "d"
    return versions(ordered, "user_id", ATTRIBUTES, "changed_at", deleted, order=("commit_lsn", "sequence"))


checks = [
    contract_check(users),
    volume_check(users, tolerance=(0.9, 2.0), min_rows=0),
    interval_check(users, Interval(["user_id"])),
]
