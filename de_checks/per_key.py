"""Checks that judge every partition key of a run by itself, in single runs and in range runs alike.

Dagster stores the result of a check in a range run (`BackfillPolicy.single_run`) once, without a partition: automation
would then never release the keys downstream. `evaluate` therefore records one evaluation per key, aimed at the very
materialisation that was judged. A bad day in the middle of thirty is held back, the other days go on.

Dagster has no public names for this yet: `de_resources/compat/checks.py` hands on its private ones, and a public API would
be put in here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import dagster as dg

from de_checks.subject import Subject, spec_of
from de_resources.compat.checks import COMPLETED_ASSET_CHECK_EXECUTION_RECORD_STATUSES, PartitionKeyFilter
from de_resources.compat.checks import AssetCheckEvaluationTargetMaterializationData as Target
from de_resources.delta.metadata import ROWS_WRITTEN, VERSION
from de_resources.errors import PermanentError
from de_resources.held_back import goes_on, holds_the_next, left_out
from de_resources.run_queue.failures import REFUSED

Key = str | None
"""A partition key, or None for the one state of an asset without partitions."""

_MATERIALIZED = dg.DagsterEventType.ASSET_MATERIALIZATION
_PAGE = 500
_RUNS_AT_ONCE = 8


class NoPartitionChosen(PermanentError):
    """A check of a partitioned asset in a run that names no partition."""

    def __init__(self, check: dg.AssetCheckKey) -> None:
        self.check = check
        super().__init__(
            f"The check `{check.to_user_string()}` judges partitions, and this run names none. "
            "Launch it for a partition, or for a range of partitions."
        )


def newest_version(writes: Iterable[Materialized]) -> int | None:
    """The version at which every key is as its own write left it: no write touches another key's rows. None: some told none."""
    versions = [write.metadata.get(VERSION) for write in writes]
    return None if None in versions else max(version for version in versions if version is not None)


@dataclass(frozen=True)
class Verdict:
    """The judgement of one key: `description` is one sentence for people, `metadata` the figures behind it."""

    passed: bool
    description: str
    metadata: Mapping[str, Any] = field(default_factory=dict)
    severity: dg.AssetCheckSeverity = dg.AssetCheckSeverity.ERROR

    def accepted_for(self, reason: str | None) -> Verdict:
        """A person lets it pass, for a reason that is recorded. Without figures there is nothing to accept."""
        if self.passed or not reason or not self.metadata:
            return self
        told = f"Accepted by a person: {reason}. Without that: {self.description}"
        return Verdict(True, told, {**self.metadata, "accepted": reason})


@dataclass(frozen=True)
class Materialized:
    """The materialisation that is judged, with the plain values of its metadata."""

    storage_id: int
    run_id: str
    timestamp: float
    metadata: Mapping[str, Any]

    @property
    def rows(self) -> int | None:
        """Live rows of the key as the write recorded them; None where it could not tell."""
        return self._first("dagster/partition_row_count", "dagster/row_count")

    @property
    def rows_of_run(self) -> int | None:
        """Rows of the key, or of a table without partitions, which may grow by every run, those that this one brought."""
        return self._first("dagster/partition_row_count", ROWS_WRITTEN, "dagster/row_count")

    def _first(self, *names: str) -> int | None:
        return next((int(self.metadata[name]) for name in names if name in self.metadata), None)


@dataclass(frozen=True)
class PastVerdict:
    """An earlier evaluation of the same check: which materialisation it judged, how, and on which figures."""

    storage_id: int | None
    passed: bool
    metadata: Mapping[str, Any]


Judge = Callable[[Mapping[Key, Materialized]], Mapping[Key, Verdict]]


def spec_for(
    asset: Subject, name: str, *, description: str, blocking: bool, metadata: Mapping[str, Any]
) -> dg.AssetCheckSpec:
    """The spec of a check with the partitions of its asset."""
    subject = spec_of(asset)
    return dg.AssetCheckSpec(
        name,
        asset=subject.key,
        description=description,
        blocking=blocking,
        partitions_def=subject.partitions_def,
        metadata=metadata,
    )


def evaluate(
    context: dg.AssetCheckExecutionContext, spec: dg.AssetCheckSpec, judge: Judge
) -> Iterator[dg.AssetCheckEvaluation | dg.Output[None]]:
    """Judge the newest materialisation of each of the run's keys and record one evaluation per key.

    `judge` is called once for all materialised keys and answers for each of them; a key that was never materialised
    fails, and one that the run has left out (`held_back`) is not judged. Where one evaluation of a blocking check fails,
    Dagster fails the step after all of them are recorded. Not so where others pass, or something of the run
    does not need this gate, and everything behind the asset leaves out what failed: then the run goes on with the others,
    and says so where the next partitions have to wait (`run_queue/failures.py`).
    A rerun judges and records again. Raises `NoPartitionChosen`.
    """
    step = context.op_execution_context.get_step_execution_context()
    keys = _keys(context, spec)
    if spec.partitions_def is not None:
        skipped = left_out(step, spec.asset_key, [key for key in keys if key is not None])
        keys = [key for key in keys if key not in skipped]
    materialized = latest_materializations(context.instance, spec.asset_key, keys, _known_in(context.run.run_id))
    judged = judge(materialized)
    verdicts = {key: judged.get(key, _NEVER_MATERIALIZED) for key in keys}
    some_pass = any(verdict.passed for verdict in verdicts.values())
    stops = spec.blocking and not goes_on(step, spec.key, some_pass=some_pass)
    if spec.blocking and not stops and holds_the_next(step, spec.asset_key):
        verdicts = {key: _holding_the_next(verdict) for key, verdict in verdicts.items()}
        if any(REFUSED in verdict.metadata for verdict in verdicts.values()):
            context.instance.add_run_tags(context.run.run_id, {REFUSED: "true"})
    for key, verdict in verdicts.items():
        yield _evaluation(spec, key, verdict, materialized.get(key), stops=stops)
    # Without an output Dagster would warn that downstream steps go on ungated.
    yield dg.Output(None, spec.get_python_identifier())


def latest_materializations(
    instance: dg.DagsterInstance,
    asset: dg.AssetKey,
    keys: Sequence[Key],
    known: MutableMapping[int, Materialized] | None = None,
) -> dict[Key, Materialized]:
    """The newest materialisation of each key that has one, in the order of `keys`.

    Which is the newest is asked each time. What it said is not read again where `known` has it, by its storage id: to read a
    materialisation with its schema and its lineage takes longer than most judgements. `known` gets what was read.
    """
    partitions = [key for key in keys if key is not None]
    if not partitions:
        last = next(iter(instance.fetch_materializations(asset, limit=1).records), None) if keys else None
        return {} if last is None or last.partition_key is not None else {None: _materialized(last)}
    known = {} if known is None else known
    newest = instance.get_latest_storage_id_by_partition(asset, _MATERIALIZED, set(partitions))
    unread = [storage_id for storage_id in newest.values() if storage_id not in known]
    for begin in range(0, len(unread), _PAGE):
        ids = unread[begin : begin + _PAGE]
        wanted = dg.AssetRecordsFilter(asset_key=asset, storage_ids=ids)
        for record in instance.fetch_materializations(wanted, limit=len(ids)).records:
            known[record.storage_id] = _materialized(record)
    return {key: known[newest[key]] for key in partitions if newest.get(key) in known}


@lru_cache(maxsize=_RUNS_AT_ONCE)
def _known_in(_run_id: str) -> dict[int, Materialized]:
    """What the checks of one run have read: a dozen of them ask for the same."""
    return {}


def preceding_materialization(
    instance: dg.DagsterInstance, asset: dg.AssetKey, key: Key, current: Materialized
) -> Materialized | None:
    """The key's materialisation before `current`."""
    wanted = dg.AssetRecordsFilter(
        asset_key=asset,
        asset_partitions=None if key is None else [key],
        before_storage_id=current.storage_id,
    )
    records = instance.fetch_materializations(wanted, limit=1).records
    return _materialized(records[0]) if records else None


def judged_before(
    instance: dg.DagsterInstance, check: dg.AssetCheckKey, key: Key, *, limit: int = 25
) -> list[PastVerdict]:
    """The newest verdicts on a key, newest first, at most one (the newest) per materialisation."""
    records = instance.event_log_storage.get_asset_check_execution_history(
        check,
        limit=limit,
        status=COMPLETED_ASSET_CHECK_EXECUTION_RECORD_STATUSES,
        partition_filter=PartitionKeyFilter(key=key),
    )
    newest: dict[int | None, PastVerdict] = {}
    for evaluation in (record.evaluation for record in records):
        if evaluation is not None:
            target = evaluation.target_materialization_data
            storage_id = target.storage_id if target else None
            newest.setdefault(storage_id, PastVerdict(storage_id, evaluation.passed, _plain(evaluation.metadata)))
    return list(newest.values())


_NEVER_MATERIALIZED = Verdict(False, "Never materialised: there is nothing to judge. Materialise it, then check it.")


def _holding_the_next(verdict: Verdict) -> Verdict:
    """What is bad holds the partitions after it though its run goes on."""
    if verdict.passed or verdict.severity != dg.AssetCheckSeverity.ERROR:
        return verdict
    return replace(verdict, metadata={**verdict.metadata, REFUSED: True})


def _keys(context: dg.AssetCheckExecutionContext, spec: dg.AssetCheckSpec) -> list[Key]:
    if spec.partitions_def is None:
        return [None]
    if not (context.has_partition_key or context.has_partition_key_range):
        raise NoPartitionChosen(spec.key)
    return [str(key) for key in context.partition_keys]


def _evaluation(
    spec: dg.AssetCheckSpec, key: Key, verdict: Verdict, judged: Materialized | None, *, stops: bool
) -> dg.AssetCheckEvaluation:
    return dg.AssetCheckEvaluation(
        asset_key=spec.asset_key,
        check_name=spec.name,
        partition=key,
        passed=verdict.passed,
        severity=verdict.severity,
        description=verdict.description,
        metadata=verdict.metadata,
        blocking=stops,
        # Automation releases a key only by a verdict on its newest materialisation.
        target_materialization_data=Target(
            storage_id=judged.storage_id, run_id=judged.run_id, timestamp=judged.timestamp
        )
        if judged
        else None,
    )


def _materialized(record: dg.EventLogRecord) -> Materialized:
    event = record.asset_materialization
    return Materialized(record.storage_id, record.run_id, record.timestamp, _plain(event.metadata if event else {}))


def _plain(metadata: Mapping[str, dg.MetadataValue[Any]]) -> dict[str, Any]:
    return {name: value.value for name, value in metadata.items()}
