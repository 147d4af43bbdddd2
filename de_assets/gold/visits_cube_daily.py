"""Traffic of a day in all dimensions.

Grain: one day and combination of country, device type and referral. Patterns: Aligned Fan-In (24 hours make a day),
Distributed Aggregator (subtotals; distinct visitors recounted for each), Audit-Write-Audit-Publish (a day is shown once
its total is that of its visits).
"""

from datetime import timedelta

import dagster as dg
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from de_assets.automation.conditions import late_cascade
from de_assets.contracts.traffic import VisitsCubeDaily
from de_assets.dataset import dataset
from de_assets.landed_visits import TO_CUBE, landed_visits_check
from de_assets.partitions import daily, hours_of_day
from de_assets.transforms.data_value.distinct_cube import cube_with_distinct
from de_assets.transforms.data_value.mergeable_measures import count, total
from de_checks.contract import contract_check
from de_checks.fan_in import fan_in_check
from de_checks.freshness import completeness_check
from de_checks.publication import publication_check
from de_checks.quantile_audit import UsualQuantiles
from de_resources.delta.publish import InputRows, KeepsContract, ReconcilesWithInput, Rows
from de_resources.observers.bounds import of_count
from de_resources.retries import RETRY_TRANSIENT

DIMENSIONS = ("country", "device_type", "referral")
VISITS = "silver.visits_enriched"
# Of a dimension whose bit is set, every value counts.
CUBE_LINEAGE = " AND ".join(
    [
        "to_date(s.event_time) = o.event_date",
        *(f"(o.grouping & {1 << bit} <> 0 OR s.{d} <=> o.{d})" for bit, d in enumerate(reversed(DIMENSIONS))),
    ]
)

AUDITS = [
    InputRows(table=VISITS, at_least=0, ratio=(0.2, 5.0), reaction="annotate"),
    KeepsContract(),
    # Every visit is counted once in the total of its day.
    ReconcilesWithInput(table=VISITS, sql="sum(CASE WHEN grouping = 7 THEN visits END)"),
    Rows(ratio=(0.2, 5.0), reaction="annotate"),
    # A day may have as many rows as ever, and in them other numbers.
    UsualQuantiles(column="visits", where="grouping = 0", by_chance=of_count, reaction="annotate"),
]


@dg.asset(
    retry_policy=RETRY_TRANSIENT,
    **dataset(
        VisitsCubeDaily,
        patterns=["aligned_fan_in", "distributed_aggregator", "audit_write_audit_publish"],
        partition="event_date",
        writer="de_resources.delta.publish:AuditedPublish",
        audits=f"{__name__}:AUDITS",
        row_lineage={"silver/visits_enriched": CUBE_LINEAGE},
        # An audit judges what is staged: a row that breaks a rule is there to be looked at, and readers do not see it.
        constraints=False,
    ),
    ins={"visits": dg.AssetIn(["silver", "visits_enriched"], partition_mapping=hours_of_day)},
    partitions_def=daily,
    automation_condition=late_cascade(),
    backfill_policy=dg.BackfillPolicy.single_run(),
)
def visits_cube_daily(visits: DataFrame) -> DataFrame:
    """Count visits and visitors for every combination."""
    robots = F.coalesce(F.col("is_bot"), F.lit(False)).cast("long")
    return cube_with_distinct(
        visits.withColumn("event_date", F.to_date("event_time")),
        "event_date",
        DIMENSIONS,
        {"visits": count(), "bot_visits": total(robots)},
        of="user_id",
        named="users",
    )


checks = [
    publication_check(visits_cube_daily),
    # What is held for its rows is judged as staged, and shown there; what is downstream waits for the publication.
    contract_check(visits_cube_daily, blocking=False),
    fan_in_check(visits_cube_daily, pattern="aligned_fan_in"),
    completeness_check(visits_cube_daily, allowed_delay=timedelta(hours=2)),
    landed_visits_check(visits_cube_daily, TO_CUBE),
]
