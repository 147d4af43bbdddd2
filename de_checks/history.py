"""What a key may be compared with: the nearest earlier states that a check has judged good."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import dagster as dg

from de_checks.baselines import Season, earlier_keys, time_dimension
from de_checks.per_key import Key, Materialized, Verdict, judged_before

Good = tuple[str | None, Mapping[str, Any]]
"""The partition that was judged good, None for an earlier load of the same key; and the figures of the verdict."""


def good_before(
    instance: dg.DagsterInstance,
    spec: dg.AssetCheckSpec,
    key: Key,
    current: Materialized,
    season: Season,
    fresh: Mapping[Key, Verdict],
) -> Iterator[Good]:
    """The good states before `current`, nearest first; `fresh` are this run's verdicts, newer than any recorded one.

    With time partitions these are earlier partitions whose newest verdict by the check is good. Without, they are the
    same key's earlier materialisations. Lazy: each partition costs one look into the instance.
    """
    if key is None or spec.partitions_def is None or time_dimension(spec.partitions_def) is None:
        for earlier_load in judged_before(instance, spec.key, key):
            if earlier_load.passed and earlier_load.storage_id != current.storage_id:
                yield None, earlier_load.metadata
        return
    for earlier in earlier_keys(spec.partitions_def, key, season):
        latest = fresh.get(earlier) or next(iter(judged_before(instance, spec.key, earlier, limit=1)), None)
        if latest is not None and latest.passed:
            yield earlier, latest.metadata
