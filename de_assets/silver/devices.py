"""Devices with their present names; those that the provider dropped stay, marked.

Grain: one device. Pattern: Merger - insert, update and soft delete by key in one commit, and no commit where nothing changed.
Pattern: Schema Migrator - `full_name` can become `title` step by step, by the job `migrate_table`; nobody has begun it.
"""

import dagster as dg
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from de_assets import migrations
from de_assets.automation.conditions import gated
from de_assets.contracts.devices import Devices
from de_assets.dataset import dataset
from de_checks.contract import contract_check
from de_checks.migration import migration_check
from de_resources.migrations.dual_write import under_migration
from de_resources.retries import RETRY_TRANSIENT


@dg.asset(
    retry_policy=RETRY_TRANSIENT,
    **dataset(
        Devices,
        patterns=["merger", "schema_migrator"],
        mode="merge",
        merge_deleted="is_deleted",
        merge_vanished="delete",
        **under_migration(f"{migrations.__name__}:DEVICE_TITLE"),
    ),
    ins={"dump": dg.AssetIn(["bronze", "devices"])},
    automation_condition=gated(),
)
def devices(dump: DataFrame) -> DataFrame:
    """The dump as the set of devices that exist. Two names of one device are left for the merge to refuse."""
    return dump.dropDuplicates().withColumn("is_deleted", F.lit(False))


checks = [contract_check(devices), migration_check(devices, migrations.DEVICE_TITLE)]
