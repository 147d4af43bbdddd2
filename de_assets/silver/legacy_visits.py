"""Visits of the legacy system as they stand: the newest state of each, those that the producer took back left out.

Grain: one visit. Pattern: Incremental Loader - an increment brings changed rows again, and a row that is deleted at the
source by a flag disappears here. Computed from all increments at once, so that neither the order in which hours were
loaded nor a rerun of one of them makes a difference.
"""

import dagster as dg
from pyspark.sql import DataFrame

from de_assets.automation.conditions import gated
from de_assets.contracts.visits import CurrentLegacyVisits
from de_assets.dataset import dataset
from de_assets.transforms.data_ingestion.incremental_loader import newest_states
from de_checks.contract import contract_check
from de_checks.keys import unique_key_check
from de_checks.volume import volume_check
from de_resources.contract import Contract
from de_resources.retries import RETRY_TRANSIENT


@dg.asset(
    retry_policy=RETRY_TRANSIENT,
    **dataset(CurrentLegacyVisits, patterns=["incremental_loader"]),
    ins={"received": dg.AssetIn(["bronze", "legacy_visits"])},
    automation_condition=gated(),
)
def legacy_visits(received: DataFrame) -> DataFrame:
    """The newest state of each visit."""
    newest = newest_states(received, key="visit_id", at="ingestion_time", deleted="is_deleted")
    return newest.select(*Contract.of(CurrentLegacyVisits).column_names)


checks = [
    contract_check(legacy_visits),
    unique_key_check(legacy_visits),
    volume_check(legacy_visits, tolerance=(0.8, 100.0), min_rows=0),
]
