"""Partitions that are not there at their deadline: no check of theirs can tell it, for nothing has run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import dagster as dg

from de_checks.baselines import time_dimension, window_of
from de_checks.freshness.completeness import expected_keys
from de_checks.sla.deadline import inside
from de_resources.contract.sla import Sla


@dataclass(frozen=True)
class MissingPartitions:
    """The partitions of a dataset whose deadline is over, in the order of time; of `waiting` an input is not there either."""

    asset: str
    keys: tuple[str, ...]
    waiting: tuple[str, ...] = ()


def missing_partitions(
    instance: dg.DagsterInstance, now: datetime, promised: Mapping[str, Sla | None], assets: Mapping[str, dg.AssetSpec]
) -> list[MissingPartitions]:
    """The partitions that should be there by `Sla.ready_within` and were never materialised, one entry for each dataset.

    As for `deadline_check`, windows that had ended before the dataset was first materialised are not judged; so nothing is
    owed of one that never ran. A clock that is set back makes nothing due. `assets` are the specs of the datasets and of what
    they read: a key whose input with time partitions is not there either waits for its source (event time), any other one for
    the platform (processing time). Reads the instance's list of materialised keys; no engine, no table.
    """
    found = (
        _missing(instance, now, assets[name], sla, assets) for name, sla in promised.items() if sla and name in assets
    )
    return [each for each in found if each is not None]


def _missing(
    instance: dg.DagsterInstance, now: datetime, spec: dg.AssetSpec, sla: Sla, assets: Mapping[str, dg.AssetSpec]
) -> MissingPartitions | None:
    if sla.ready_within is None or time_dimension(spec.partitions_def) is None:
        return None
    begun, cutoff = begun_at(instance, spec.key), now - sla.ready_within
    if begun is None or cutoff <= begun:
        return None
    assert spec.partitions_def is not None  # noqa: S101 - it has a calendar
    due = expected_keys(spec.partitions_def, cutoff, cutoff - begun, instance)
    there = instance.get_materialized_partitions(spec.key) if due else set()
    keys = tuple(key for key in due if key not in there)
    if not keys:
        return None
    inputs = {dep.asset_key.to_user_string(): dep.asset_key for dep in spec.deps}
    arrived = {
        name: (assets[name], instance.get_materialized_partitions(key))
        for name, key in inputs.items()
        if name in assets and time_dimension(assets[name].partitions_def) is not None
    }
    return MissingPartitions(
        spec.key.to_user_string(), keys, tuple(key for key in keys if any(_absent(spec, key, arrived)))
    )


def begun_at(instance: dg.DagsterInstance, asset: dg.AssetKey) -> datetime | None:
    """When the dataset was first materialised; None where it never was."""
    first = instance.fetch_materializations(dg.AssetRecordsFilter(asset), limit=1, ascending=True).records
    return datetime.fromtimestamp(first[0].timestamp, UTC) if first else None


def _absent(spec: dg.AssetSpec, key: str, inputs: Mapping[str, tuple[dg.AssetSpec, set[str]]]) -> Iterator[bool]:
    window = window_of(spec.partitions_def, key)
    assert window is not None  # noqa: S101 - it has a calendar
    for read, there in inputs.values():
        yield not set(inside(read, window)) <= there
