"""Visits with the device's name and what was true of the user at the time.

Grain: one page view: every one of silver.visits, and those of silver.visits_late that landed soon enough. Patterns: Static
Joiner - visits without a match stay, are recognisable, and counted; Dynamic Late Data Integrator - here late visits join
those of their hour, and everything that is made of hours has them.

Of the late visits an hour reads those *of* the hour, whenever they landed, and not those that landed in it. To Dagster it
depends on the same hour of silver/visits_late all the same, which the run that writes silver/visits writes too: hours that may
still land are not awaited. What they bring, the sensor `late_hours` finds in the log of the table.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

import dagster as dg
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from de_assets.automation.conditions import late_cascade
from de_assets.contracts.visits import VisitsEnriched
from de_assets.dataset import dataset
from de_assets.partitions import hourly
from de_assets.transforms.data_value.static_joiner import count_unmatched, join_reference, join_valid_at
from de_assets.transforms.error_management.dynamic_late_data_integrator import LateRule, take_in_late
from de_checks.contract import contract_check
from de_checks.keys import unique_key_check
from de_resources.contract import Contract
from de_resources.delta.observed_frame import ObservedFrame
from de_resources.held_back import own_keys
from de_resources.retries import RETRY_TRANSIENT

# Neither awaited nor followed. Late visits come with those on time, and the sensor follows what they bring to other hours.
REFERENCE = dg.AssetSelection.assets(["silver", "users"], ["silver", "devices"], ["silver", "visits_late"])
TAKES_LATE_FOR = Contract.of(VisitsEnriched).late_for or timedelta(0)


@dg.asset(
    retry_policy=RETRY_TRANSIENT,
    **dataset(
        VisitsEnriched,
        patterns=["static_joiner", "dynamic_late_data_integrator", "fine_grained_tracker"],
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
        "late": dg.AssetIn(["silver", "visits_late"], metadata={"partition_expr": "event_hour"}),
        # Without a database there are no users; visits are then those of unknown visitors, and say so.
        "users": dg.AssetIn(["silver", "users"], metadata={"if_missing": "empty"}),
        "devices": dg.AssetIn(["silver", "devices"], metadata={"if_missing": "empty"}),
    },
    partitions_def=hourly,
    automation_condition=late_cascade(reference=REFERENCE),
    backfill_policy=dg.BackfillPolicy.single_run(),
)
def visits_enriched(
    context: dg.AssetExecutionContext, visits: DataFrame, late: DataFrame, users: DataFrame, devices: DataFrame
) -> ObservedFrame:
    """Take in what came late, then join with the version of the user that was valid at the event, and with the devices."""
    hours = [hourly.time_window_for_partition_key(key).start for key in own_keys(context)]
    found = with_late(visits, late, hours).transform(lambda whole: enriched(whole, users, devices))
    return found.and_then(lambda rows: count_unmatched(rows, "is_registered", window="event_hour", expected=hours))


def with_late(visits: DataFrame, late: DataFrame, hours: Sequence[datetime]) -> ObservedFrame:
    """The visits on time, and those of the late ones that belong to their hours."""
    rule = LateRule("event_hour", "landing_hour", TAKES_LATE_FOR, key=["visit_id"], survivor=["event_time", "raw"])
    return take_in_late(visits, late, rule, expected=hours)


def enriched(visits: DataFrame, users: DataFrame, devices: DataFrame) -> DataFrame:
    """The columns of silver.visits_enriched."""
    with_user = join_valid_at(visits, users, "user_id", "event_time", {"country": "country"}, matched="is_registered")
    found = join_reference(
        with_user.withColumn("device_type", F.lower("device_type")),
        devices,
        {"device_type": "type", "device_version": "version"},
        {"full_name": "device_name"},
    )
    return found.select(*Contract.of(VisitsEnriched).column_names)


checks = [contract_check(visits_enriched), unique_key_check(visits_enriched)]
