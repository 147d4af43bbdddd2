"""What a write's own counters prove about the state it left, and when they prove nothing.

A write that replaces its slice counts every row of the state it leaves. A write that merges or appends counts only the
rows it brings: zero violations among them prove a good state only if the state before was judged good, and violations
among them may not have landed (a stale row is not merged).
"""

from __future__ import annotations

from dataclasses import dataclass

import dagster as dg

from de_checks.per_key import Key, Materialized, judged_before, latest_materializations, preceding_materialization
from de_checks.violations import Count
from de_resources.contract import Contract
from de_resources.delta.metadata import VIOLATIONS
from de_resources.delta.write.merge_state import AFTER

WRITE = "counters of the write"
SCAN = "a scan of the slice"


@dataclass(frozen=True)
class Evidence:
    """Where a key's figures come from; `count` is None where somebody has to look at the rows."""

    source: str
    count: Count | None = None


def evidence(
    instance: dg.DagsterInstance,
    asset: dg.AssetSpec,
    contract: Contract,
    check: dg.AssetCheckKey,
    key: Key,
    write: Materialized,
) -> Evidence:
    """What the metadata of `write`, the key's newest materialisation, proves about the key. Touches no data."""
    counted = write.metadata.get(VIOLATIONS)
    # A rule that joined the contract after the write was not counted by it.
    if counted is None or any(rule.name not in counted for rule in contract.rules):
        return Evidence(SCAN)
    violations = {rule.name: int(counted[rule.name]) for rule in contract.rules}
    clean = not any(violations.values())
    proven = _replaced(asset, write) or (clean and _was_good(instance, check, key, write))
    if not proven or (not clean and not _wrote_only(key, write)):
        return Evidence(SCAN)
    return Evidence(WRITE, Count(write.rows, violations))


def _replaced(asset: dg.AssetSpec, write: Materialized) -> bool:
    return asset.metadata.get("mode") not in ("merge", "append") and write.metadata.get("delta/operation") == "WRITE"


def _wrote_only(key: Key, write: Materialized) -> bool:
    return key is None or write.metadata.get("slice") == key


def _was_good(instance: dg.DagsterInstance, check: dg.AssetCheckKey, key: Key, write: Materialized) -> bool:
    if AFTER in write.metadata:
        # A stateful merge builds on the partition before it.
        key = write.metadata[AFTER]
        before = latest_materializations(instance, check.asset_key, [key]).get(key)
    else:
        before = preceding_materialization(instance, check.asset_key, key, write)
    if before is None:
        return True
    judged = judged_before(instance, check, key)
    return next((j.passed for j in judged if j.storage_id == before.storage_id), False)
