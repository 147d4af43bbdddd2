"""What a check has measured before, newest first, whatever it was aimed at."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import dagster as dg

from de_checks.factory import CheckRun
from de_resources.compat.checks import COMPLETED_ASSET_CHECK_EXECUTION_RECORD_STATUSES

LOOKED_AT = 12
"""So many measurements tell a speed."""


def measured_before(run: CheckRun, limit: int = LOOKED_AT) -> list[Mapping[str, Any]]:
    """Metadata of the newest verdicts of this check. A read of the event log."""
    records = run.instance.event_log_storage.get_asset_check_execution_history(
        run.check.key, limit=limit, status=COMPLETED_ASSET_CHECK_EXECUTION_RECORD_STATUSES
    )
    evaluations = (record.evaluation for record in records)
    return [{k: v.value for k, v in each.metadata.items()} for each in evaluations if each is not None]


def result(
    passed: bool, severity: dg.AssetCheckSeverity, description: str, metadata: Mapping[str, Any]
) -> dg.AssetCheckResult:
    """A measurement as Dagster's result; what is no number is told as JSON."""
    told = {k: dg.MetadataValue.json(v) if isinstance(v, dict | list) else v for k, v in metadata.items()}
    return dg.AssetCheckResult(passed=passed, severity=severity, description=description, metadata=told)


def unknown(why: str) -> dg.AssetCheckResult:
    """Nothing could be measured: a warning, for a reader that nobody can see may be late."""
    return dg.AssetCheckResult(passed=False, severity=dg.AssetCheckSeverity.WARN, description=f"Not known: {why}")
