"""Visits with the device's name and what was true of the user at the time.

Grain: one page view, every one of silver.visits. Pattern: Static Joiner - visits without a match stay and are recognisable.
"""

import dagster as dg
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from de_assets.automation.conditions import late_cascade
from de_assets.contracts.visits import VisitsEnriched
from de_assets.dataset import dataset
from de_assets.partitions import hourly
from de_assets.transforms.data_value.static_joiner import join_reference, join_valid_at
from de_checks.contract import contract_check
from de_checks.keys import unique_key_check
from de_resources.contract import Contract
from de_resources.retries import RETRY_TRANSIENT

REFERENCE = dg.AssetSelection.assets(["silver", "users"], ["silver", "devices"])


@dg.asset(
    retry_policy=RETRY_TRANSIENT,
    **dataset(
        VisitsEnriched,
        patterns=["static_joiner", "fine_grained_tracker"],
        partition="event_hour",
        row_lineage={
            "silver/users": "s.user_id = o.user_id AND o.event_time >= s.valid_from "
            "AND (s.valid_to IS NULL OR o.event_time < s.valid_to)",
            # Its version is not kept: every device of this kind and name.
            "silver/devices": "s.type = o.device_type AND s.full_name = o.device_name",
        },
    ),
    ins={
        "visits": dg.AssetIn(["silver", "visits"]),
        # Without a database there are no users; visits are then those of unknown visitors, and say so.
        "users": dg.AssetIn(["silver", "users"], metadata={"if_missing": "empty"}),
        "devices": dg.AssetIn(["silver", "devices"], metadata={"if_missing": "empty"}),
    },
    partitions_def=hourly,
    automation_condition=late_cascade(reference=REFERENCE),
    backfill_policy=dg.BackfillPolicy.single_run(),
)
def visits_enriched(visits: DataFrame, users: DataFrame, devices: DataFrame) -> DataFrame:
    """Join with the version of the user that was valid at the event, and with the devices."""
    with_user = join_valid_at(visits, users, "user_id", "event_time", {"country": "country"}, matched="is_registered")
    enriched = join_reference(
        with_user.withColumn("device_type", F.lower("device_type")),
        devices,
        {"device_type": "type", "device_version": "version"},
        {"full_name": "device_name"},
    )
    return enriched.select(*Contract.of(VisitsEnriched).column_names)


checks = [contract_check(visits_enriched), unique_key_check(visits_enriched)]
