"""One run of a unit over a range of its partitions, and what became of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import dagster as dg
from dagster import DagsterInstance

from de_assets.filling.units import Unit
from de_assets.ranges import range_tags

UNIT_TAG = "de/unit"
_QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
_GATE = "DagsterAssetCheckFailedError"


@dataclass
class UnitOutcome:
    """What became of a unit."""

    unit: Unit
    runs: int = 0
    seconds: float = 0.0
    written: set[str] = field(default_factory=set)
    """Partition keys; `""` for assets without partitions."""
    up_to_date: set[str] = field(default_factory=set)
    """Partitions that were not computed again, since nothing that they read has changed."""
    rows: dict[dg.AssetKey, int] = field(default_factory=dict)
    """Rows that the runs said they wrote."""
    failures: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    """Partitions whose run failed, with the error."""
    verdicts: dict[tuple[str, str], dg.AssetCheckEvaluation] = field(default_factory=dict)
    """By check and partition: the last word. A set of partitions may only be sound after the last of several runs."""
    held_back: dict[str, str] = field(default_factory=dict)
    """Partitions that were not computed, with what holds them back upstream."""
    left_out: str | None = None
    """Why there is nothing to compute with: the source or service that is absent."""

    @property
    def checks_passed(self) -> int:
        """How many checks passed, each partition counted."""
        return sum(evaluation.passed for evaluation in self.verdicts.values())

    @property
    def checks_failed(self) -> list[str]:
        """Names of those that did not, with the partition."""
        return list(self.not_passed(dg.AssetCheckSeverity.ERROR))

    @property
    def checks_warned(self) -> list[str]:
        """Names of those that did not, and only warn."""
        return list(self.not_passed(dg.AssetCheckSeverity.WARN))

    def not_passed(self, severity: dg.AssetCheckSeverity) -> dict[str, str]:
        """Checks that did not pass, by name and partition, and what they found: their verdicts hold no personal values."""
        found = {at: v for at, v in self.verdicts.items() if not v.passed and v.severity == severity}
        return {f"{name} [{key}]" if key else name: v.description or "" for (name, key), v in found.items()}

    @property
    def bad(self) -> dict[str, str]:
        """Partitions that failed, or that a blocking check of this unit holds back, with the reason."""
        gates: dict[str, list[str]] = {}
        for (name, key), found in self._red():
            what = f": {found.description}" if found.description else ""
            gates.setdefault(key, []).append(f"the check {name} failed{what}")
        return {**{key: "; ".join(said) for key, said in gates.items()}, **self.failed}

    @property
    def refused(self) -> dict[str, frozenset[dg.AssetCheckKey]]:
        """Partitions that were computed and that blocking checks hold back, with these."""
        by: dict[str, set[dg.AssetCheckKey]] = {}
        for (_, key), found in self._red():
            by.setdefault(key, set()).add(found.asset_check_key)
        return {key: frozenset(gates) for key, gates in by.items() if key not in self.failed}

    def _red(self) -> Iterator[tuple[tuple[str, str], dg.AssetCheckEvaluation]]:
        for at, found in self.verdicts.items():
            blocks = found.asset_check_key in self.unit.gates and found.severity == dg.AssetCheckSeverity.ERROR
            if blocks and not found.passed:
                yield at, found


def run_keys(
    instance: DagsterInstance,
    unit: Unit,
    selection: tuple[str, str] | None,
    outcome: UnitOutcome,
    tags: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """One run of the unit's assets over a range of partitions, or of all there is; `outcome` is told what happened."""
    job = unit.location.resolve_implicit_global_asset_job_def()
    result = job.execute_in_process(
        instance=instance,
        asset_selection=list(unit.assets),
        tags={**tags, **(range_tags(*selection) if selection else {}), UNIT_TAG: unit.assets[0].to_user_string()},
        run_config=_QUIET,
        raise_on_error=False,
    )
    outcome.runs += 1
    for event in result.get_asset_materialization_events():
        materialization = event.step_materialization_data.materialization
        outcome.written.add(materialization.partition or "")
        _count_rows(outcome, materialization)
    for evaluation in result.get_asset_check_evaluations():
        name = f"{evaluation.asset_key.to_user_string()}: {evaluation.check_name}"
        outcome.verdicts[name, evaluation.partition or ""] = evaluation
    reasons = {e.step_key or unit.name: reason(e) for e in _failures(result)}
    outcome.failures += [f"{step}: {said}" for step, said in reasons.items()]
    for said in list(reasons.values())[:1]:
        outcome.failed.update(dict.fromkeys(_keys_of(unit, selection), said))


def _failures(result: dg.ExecuteInProcessResult) -> list[dg.DagsterEvent]:
    """The steps that failed; where there is none, the end of a run that failed before its first step, for want of a resource.

    A blocking check that fails ends its step as well; it is told as a check.
    """
    steps = result.get_step_failure_events()
    if not steps:
        return [event for event in result.all_events if event.event_type == dg.DagsterEventType.RUN_FAILURE]
    return [event for event in steps if not _is_gate(event)]


def _is_gate(event: dg.DagsterEvent) -> bool:
    error = event.step_failure_data.error
    return error is not None and error.cls_name == _GATE


def _count_rows(outcome: UnitOutcome, materialization: dg.AssetMaterialization) -> None:
    told = materialization.metadata.get("dagster/partition_row_count") or materialization.metadata.get(
        "dagster/row_count"
    )
    if told is not None and isinstance(told.value, int):
        key = materialization.asset_key
        outcome.rows[key] = outcome.rows.get(key, 0) + told.value


def _keys_of(unit: Unit, selection: tuple[str, str] | None) -> list[str]:
    if unit.partitions is None or selection is None:
        return [""]
    return list(unit.partitions.get_partition_keys_in_range(dg.PartitionKeyRange(*selection)))


def reason(event: dg.DagsterEvent) -> str:
    """The platform's own sentence where the chain of errors has one, else its innermost cause."""
    data = event.step_failure_data if event.is_step_failure else event.job_failure_data
    error, chosen = data.error, None
    while error is not None:
        if chosen is None or not chosen.message.startswith("de_"):
            chosen = error
        error = error.cause
    return (chosen.message.strip().splitlines() or ["unknown"])[0][:500] if chosen else "unknown"
