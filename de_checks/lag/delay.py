"""How long does it take from the event to the table? Median and 95th percentile of a column of delays."""

from datetime import timedelta

import dagster as dg
from pyspark.sql import functions as F

from de_checks.factory import CheckRun, check_of_asset
from de_checks.freshness.clock import duration
from de_checks.subject import Subject
from de_resources.sql.identifiers import identifier


def delay_check(
    asset: Subject,
    *,
    column: str,
    since: str,
    median: timedelta,
    window: timedelta = timedelta(hours=1),
    blocking: bool = False,
    name: str = "delay_is_short",
) -> dg.AssetChecksDefinition:
    """A check of the newest rows: the median of `column`, milliseconds, is at most `median`.

    The newest rows are those within `window` before the greatest `since` (a time column); rows without a delay do not
    count, and where there is none the check passes and says so. Two scans of one or two columns. Needs the resource `lake`.
    Metadata: `rows`, `median_ms`, `p95_ms`, which the UI plots.
    """

    def judge(run: CheckRun) -> dg.AssetCheckResult:
        rows = run.table().read(run.lake.spark.spark_session)
        delay, time = F.col(identifier(column)), F.col(identifier(since))
        newest = rows.agg(F.max(time).alias("newest"))
        recent = rows.crossJoin(F.broadcast(newest)).where(
            (time > F.col("newest") - F.expr(f"INTERVAL {int(window.total_seconds())} SECONDS")) & delay.isNotNull()
        )
        found = recent.agg(F.count(delay), F.percentile(delay, F.lit(0.5)), F.percentile(delay, F.lit(0.95))).first()
        count, middle, high = found or (0, 0.0, 0.0)
        if not count:
            return dg.AssetCheckResult(passed=True, description="No row tells a delay.", metadata={"rows": 0})
        return dg.AssetCheckResult(
            passed=middle <= median.total_seconds() * 1000,
            metadata={"rows": count, "median_ms": float(middle), "p95_ms": float(high)},
        )

    return check_of_asset(
        asset,
        name,
        judge,
        description=f"Half of the rows of the last {duration(window.total_seconds())} arrived within "
        f"{duration(median.total_seconds())}.",
        blocking=blocking,
        resources=["lake"],
    )
