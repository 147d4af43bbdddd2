"""What a key may be compared with: the nearest earlier states that were accepted, by the check itself and by every gate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import dagster as dg

from de_checks.baselines import Season, earlier_keys, time_dimension
from de_checks.factory import CheckRun
from de_checks.per_key import Key, Materialized, judged_before

Good = tuple[str | None, Mapping[str, Any]]
"""The partition that was judged good, None for an earlier load of the same key; and the figures of the verdict."""


def good_before(run: CheckRun, key: Key, current: Materialized, season: Season) -> Iterator[Good]:
    """The good states before `current`, nearest first; this run's own verdicts are newer than any recorded one.

    With time partitions these are earlier partitions whose newest verdict by the check is good, and which no blocking check of
    the asset has refused. Without, they are the same key's earlier materialisations. Lazy: each partition costs a few looks
    into the instance. What another check of this very run finds may not be recorded yet.
    """
    partitions = run.check.partitions_def
    if key is None or partitions is None or time_dimension(partitions) is None:
        refused = {storage_id for gate in run.gates for storage_id in _refused(run, gate, key)}
        for earlier_load in judged_before(run.instance, run.check.key, key):
            if earlier_load.passed and earlier_load.storage_id not in {current.storage_id, *refused}:
                yield None, earlier_load.metadata
        return
    for earlier in earlier_keys(partitions, key, season):
        figures = accepted(run, earlier)
        if figures is not None:
            yield earlier, figures


def accepted(run: CheckRun, key: Key) -> Mapping[str, Any] | None:
    """The figures of a partition that the check found good and no gate has refused; None of any other."""
    if key in run.refused:
        return None
    latest = run.verdicts.get(key) or next(iter(judged_before(run.instance, run.check.key, key, limit=1)), None)
    return latest.metadata if latest is not None and latest.passed else None


def _refused(run: CheckRun, gate: dg.AssetCheckKey, key: Key) -> list[int | None]:
    """The loads of a key that a blocking check has refused."""
    return [verdict.storage_id for verdict in judged_before(run.instance, gate, key) if not verdict.passed]
