"""What the definitions of code locations say about each asset, as the observatory needs it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import dagster as dg

from de_resources.compat.graph import AssetGraph
from de_resources.observatory.model import Check, ObservedColumn, ObservedDataset, ObservedPartition

PATTERN = "pattern/"
MOST_PARTITIONS = 10_000
"""A year of hours is 8,784. Of an asset with more partitions the newest are shown."""


@dataclass(frozen=True)
class Declared:
    """A dataset without its history, and what its history is asked for with."""

    dataset: ObservedDataset
    key: dg.AssetKey
    checks: tuple[dg.AssetCheckKey, ...] = ()


def declared(locations: Iterable[dg.Definitions], instance: dg.DagsterInstance, at: datetime) -> dict[str, Declared]:
    """All assets of all locations by name. One that several locations name is told by the one that writes it."""
    found: dict[str, Declared] = {}
    for location in locations:
        graph = location.resolve_asset_graph()
        for spec in location.resolve_all_asset_specs():
            name = spec.key.to_user_string()
            own = _declared(spec, graph, instance, at)
            if name not in found or found[name].dataset.external:
                found[name] = own
    return found


def _declared(spec: dg.AssetSpec, graph: AssetGraph, instance: dg.DagsterInstance, at: datetime) -> Declared:
    node = graph.get(spec.key)
    checks = tuple(sorted(key for key in graph.asset_check_keys if key.asset_key == spec.key))
    policy = spec.freshness_policy
    dataset = ObservedDataset(
        name=spec.key.to_user_string(),
        description=spec.description or "",
        group=spec.group_name or "default",
        owners=tuple(spec.owners),
        kinds=tuple(sorted(spec.kinds)),
        patterns=_patterns(spec.tags),
        upstream=tuple(sorted(parent.to_user_string() for parent in node.parent_keys if parent != spec.key)),
        partitions=_partitions(spec.partitions_def, instance, at),
        columns=_columns(spec.metadata.get("dagster/column_schema")),
        checks=tuple(_check(graph, key) for key in checks),
        promise="" if policy is None else _promise(policy),
        external=not node.is_executable,
    )
    return Declared(dataset, spec.key, checks)


def _patterns(labels: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(label.removeprefix(PATTERN) for label in labels if label.startswith(PATTERN)))


def _check(graph: AssetGraph, key: dg.AssetCheckKey) -> Check:
    spec = graph.get_check_spec(key)
    return Check(
        name=spec.name,
        description=spec.description or "",
        blocking=spec.blocking,
        by_partition=spec.partitions_def is not None,
        patterns=_patterns(spec.metadata or {}),
    )


def _columns(schema: object) -> tuple[ObservedColumn, ...]:
    table = schema.value if isinstance(schema, dg.TableSchemaMetadataValue) else schema
    if not isinstance(table, dg.TableSchema):
        return ()
    return tuple(
        ObservedColumn(c.name, c.type, c.description or "", "personal" in (c.tags or {})) for c in table.columns
    )


def _partitions(
    partitions: dg.PartitionsDefinition | None, instance: dg.DagsterInstance, at: datetime
) -> tuple[ObservedPartition, ...] | None:
    if partitions is None:
        return None
    keys: Sequence[str] = partitions.get_partition_keys(current_time=at, dynamic_partitions_store=instance)
    keys = [str(key) for key in keys[-MOST_PARTITIONS:]]
    if not isinstance(partitions, dg.TimeWindowPartitionsDefinition):
        return tuple(map(ObservedPartition, keys))
    return tuple(ObservedPartition(key, partitions.start_time_for_partition_key(key).astimezone(UTC)) for key in keys)


def _promise(policy: dg.FreshnessPolicy) -> str:
    fail = getattr(policy, "fail_window", None)
    if fail is not None:
        return f"written at least every {fail.to_timedelta()}"
    return f"written by the deadline `{getattr(policy, 'deadline_cron', 'of its policy')}`"
