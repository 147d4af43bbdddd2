"""Does the lake get every change? Whether a capture still reads the log, and whether what it relayed was understood."""

import dagster as dg
from pyspark.sql import functions as F

from de_checks.factory import CheckRun, check_of_asset
from de_checks.subject import Subject
from de_resources.capture import CaptureSource, SlotLost, status
from de_resources.local.endpoints import ServiceUnavailable
from de_resources.postgres import PostgresDatabase
from de_resources.sql.identifiers import identifier


def capture_check(
    asset: Subject, source: CaptureSource, *, name: str = "log_is_read_without_a_gap"
) -> dg.AssetChecksDefinition:
    """A check that the capture's slot is there and was not invalidated: red from the loss until a snapshot made up for it.

    One question to the database; where that is away, the check passes with a warning in its description, for nothing is known
    to be lost. Needs the resource `database`. Metadata: `retained_bytes` of log, which the UI plots.
    """

    def judge(run: CheckRun) -> dg.AssetCheckResult:
        database: PostgresDatabase = run.resources.database
        try:
            slot = status(database, source)
        except ServiceUnavailable as away:
            return dg.AssetCheckResult(passed=True, description=f"Not known: {away}")
        if slot is None:
            return dg.AssetCheckResult(
                passed=False,
                description=f"There is no slot `{source.slot}`: changes are not kept for anybody. Start the capture with "
                "`de up`: it begins with a snapshot, which also tells what was deleted meanwhile.",
            )
        said = str(SlotLost(source)) if slot.is_lost else None
        return dg.AssetCheckResult(
            passed=not slot.is_lost, description=said, metadata={"retained_bytes": slot.retained_bytes}
        )

    return check_of_asset(
        asset,
        name,
        judge,
        description=f"The slot `{source.slot}` has kept every change until it was relayed.",
        resources=["database"],
    )


def understood_check(
    asset: Subject,
    *,
    error: str,
    emptied: str,
    since: str,
    remedy: str,
    name: str = "changes_are_understood",
) -> dg.AssetChecksDefinition:
    """A check that no change was left out: red while there is a row with `error` that no snapshot has made up for.

    `emptied` is SQL that is true of the row with which a snapshot begins; rows before it, by the time `since`, are made up
    for. A red result says what is wrong, and `remedy`. Two scans of three columns. Needs the resource `lake`.
    Metadata: `not_understood`, and `reasons` with their numbers.
    """

    def judge(run: CheckRun) -> dg.AssetCheckResult:
        rows = run.table().read(run.lake.spark.spark_session)
        time = F.col(identifier(since))
        newest = rows.where(F.expr(emptied)).agg(F.max(time).alias("_snapshot"))
        left_out = rows.where(F.col(identifier(error)).isNotNull()).crossJoin(F.broadcast(newest))
        open_ = left_out.where(F.col("_snapshot").isNull() | (time >= F.col("_snapshot")))
        reasons = {row[0]: row[1] for row in open_.groupBy(F.col(identifier(error))).count().limit(10).collect()}
        return dg.AssetCheckResult(
            passed=not reasons,
            description=f"{next(iter(reasons))}. {remedy}" if reasons else None,
            metadata={"not_understood": sum(reasons.values()), "reasons": dg.MetadataValue.json(reasons)},
        )

    return check_of_asset(
        asset, name, judge, description="Every change since the last snapshot was understood.", resources=["lake"]
    )
