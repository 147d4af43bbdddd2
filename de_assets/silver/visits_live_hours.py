"""Live visits by the hour: an hour is shown when it is over, and was found right.

Grain: one record of the topic that was understood. Pattern: Audit-Write-Audit-Publish, window by window - what comes is staged
at once; an hour that an audit holds stays staged while the hours after it go on, and a late visit has its hour judged again.

Who counts live visits reads this, and not `silver/visits_live`, which has an hour while it fills: half an hour looks like a
bad one there, and a producer whose clock is wrong, or who sends everything twice, is in the figures before anybody looks.
"""

import dagster as dg
from pyspark.sql import DataFrame

from de_assets.automation.conditions import gated
from de_assets.contracts.visits_live import VisitsLiveHours
from de_assets.dataset import dataset
from de_assets.partitions import calendar_now, hourly
from de_assets.silver.visits_live import RULE, VISITS_STREAM, in_event_hour
from de_checks.contract import contract_check
from de_checks.publication import publication_check
from de_resources.delta.publish import KeepsContract, Measured, Rows, Windows
from de_resources.delta.read_versions import record_read
from de_resources.delta.table import TableMissing
from de_resources.lake import Lake
from de_resources.lineage.inputs import read_as
from de_resources.retries import RETRY_TRANSIENT
from de_resources.spark import SparkEngine

# As long as a visit may be late and still count as on time.
WINDOWS = Windows(
    by="event_hour", every=hourly, event_time="event_time", grace=RULE.lateness.allowed, clock=calendar_now
)
AHEAD = RULE.lateness.skew
"""How far the clocks of producers may be ahead of the broker's."""
FEW = 20
"""Visits of which a share says nothing: one copy among four is no producer that sends everything twice."""


def _share(rows: str) -> str:
    """SQL for the share of the hour's records that `rows` counts."""
    return f"CASE WHEN count(*) < {FEW} THEN 0 ELSE ({rows}) / count(*) END"


AUDITS = [
    KeepsContract(reaction="dispatch"),
    Measured(what="share of copies", sql=_share("count(*) - count(DISTINCT visit_id)"), high=0.2),
    Measured(
        what="share dated in the future",
        sql=_share(f"count_if(event_time > append_time + INTERVAL {AHEAD.total_seconds():.0f} SECONDS)"),
        high=0.1,
    ),
    Rows(ratio=(0.1, 10.0), reaction="annotate"),
]


@dg.asset(
    retry_policy=RETRY_TRANSIENT,
    **dataset(
        VisitsLiveHours,
        patterns=["audit_write_audit_publish"],
        mode="append",
        writer="de_resources.delta.publish:AuditedWindows",
        windows=f"{__name__}:WINDOWS",
        audits=f"{__name__}:AUDITS",
        # An audit judges what is staged: a row that breaks a rule waits there, and readers do not see it.
        constraints=False,
    ),
    deps=[VISITS_STREAM],
    automation_condition=gated(),
)
def visits_live_hours(context: dg.AssetExecutionContext, lake: Lake, spark: SparkEngine) -> DataFrame:
    """A streaming frame over what the broker brought and could be understood, in the hours of the events."""
    stream = lake.table(VISITS_STREAM)
    if stream.log() is None:
        raise TableMissing(stream.name)
    record_read(context, stream)
    records = read_as(spark.spark_session.readStream.format("delta").load(stream.uri), VISITS_STREAM)
    return in_event_hour(records.where(RULE.understood))


checks = [publication_check(visits_live_hours), contract_check(visits_live_hours, blocking=False)]
