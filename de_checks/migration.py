"""Do the two sides of a table under migration say the same? Guard of the *Schema Migrator*."""

from __future__ import annotations

from typing import TYPE_CHECKING

import dagster as dg

from de_checks.factory import CheckRun, check_of_asset
from de_checks.subject import Subject
from de_resources.migrations import Migration
from de_resources.migrations.progress import Phase, progress_of

if TYPE_CHECKING:
    from de_resources.migrations.measure import MeasuredSides, Partition

_SHOWN = 10


def migration_check(
    asset: Subject, migration: Migration, *, name: str = "both_sides_agree"
) -> dg.AssetChecksDefinition:
    """A check of the table as a whole: during grace every row says the same in the old columns and in the new ones.

    It finds what old writers around the platform leave behind: rows of one side only (red once the old rows were filled;
    before, they are expected), and rows whose sides differ (always red). Before and after grace it reads the log and no row,
    during it one scan of the columns of both sides. Needs the resource `lake`. Metadata: `migration/phase`,
    `migration/old_alone`, `migration/new_alone`, `migration/differing`, `migration/losing`, `migration/partitions`.
    """

    def judge(run: CheckRun) -> dg.AssetCheckResult:
        from de_resources.migrations.measure import measure

        table = run.table()
        log = table.log()
        if log is None:
            return dg.AssetCheckResult(passed=True, description="There is no table yet.")
        phase = progress_of(log, table.name, migration).phase
        if phase in (Phase.NOT_STARTED, Phase.CONTRACTED):
            told = f"`{migration.name}` is {phase}: one side is stored."
            return dg.AssetCheckResult(passed=True, description=told, metadata={"migration/phase": str(phase)})
        found = measure(run.lake.spark.spark_session, table, migration)
        return _verdict(phase, found)

    return check_of_asset(
        asset,
        name,
        judge,
        description=f"While `{migration.name}` is under way, old and new columns say the same in every row.",
        patterns=["schema_migrator"],
        resources=["lake"],
    )


def _verdict(phase: Phase, found: MeasuredSides) -> dg.AssetCheckResult:
    told = f"{found.pending:,} of {found.rows:,} row(s) are filled on one side only, {found.differing:,} differ."
    if found.losing:
        told += f" {found.losing:,} row(s) would lose something when the old columns go."
    return dg.AssetCheckResult(
        passed=not found.differing and (phase is Phase.EXPANDED or not found.pending),
        description=told,
        metadata={
            "migration/phase": str(phase),
            "migration/old_alone": found.old_alone,
            "migration/new_alone": found.new_alone,
            "migration/differing": found.differing,
            "migration/losing": found.losing,
            "migration/partitions": [_text(values) for values in found.pending_in[:_SHOWN]],
        },
    )


def _text(values: Partition) -> str:
    return " / ".join(map(str, values)) or "all"
