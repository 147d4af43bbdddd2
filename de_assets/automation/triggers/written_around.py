"""Checks that are asked because somebody wrote around the platform: Delta keeps no unique keys and no references.

The check of a key looks in the runs of its asset. Whoever writes the table by Spark, `deltalake` or anything else starts none.
This sensor reads the logs of the tables that have such checks, through `deltalake` and without an engine: a commit that
changed rows and has no run's stamp is somebody else's, and the checks of the partitions that it changed are requested, once for
each such version. Compaction changes no rows, and what the platform wrote after it was checked with that write.

Cursor: per asset the table's id and the version up to which its log was read.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime
from typing import TYPE_CHECKING, Any

import dagster as dg

from de_assets.dataset import pattern_tags
from de_assets.ranges import key_ranges, range_tags
from de_checks.keys import COMMITS
from de_checks.patterns import KEPT_BY_CHECK
from de_resources.delta.log.changed_partitions import PartitionChange, Values
from de_resources.delta.log.changed_partitions import written_around as changed_around
from de_resources.delta.slices import make_slice
from de_resources.delta.table import Table

if TYPE_CHECKING:
    from de_resources.compat.graph import AssetNode
    from de_resources.delta.log import TableLog

AROUND = "written_around/version"
"""Run tag: the version that somebody wrote around the platform."""

PARTITION = "dagster/partition"
RANGES_PER_LOOK = 50
"""Of one asset; somebody who rewrites scattered partitions of years is told of the newest of them."""


def kept_by_check(checks: Sequence[dg.AssetChecksDefinition]) -> list[dg.AssetChecksDefinition]:
    """Those of these checks that ask what a store answers to no writer."""
    return [check for check in checks if any(spec.metadata.get(KEPT_BY_CHECK) for spec in check.check_specs)]


def written_around(
    checks: Sequence[dg.AssetChecksDefinition], *, name: str = "written_around", seconds: int = 120
) -> dg.SensorDefinition:
    """A sensor over checks of what no store keeps: a run of those of an asset when its table was written around the platform.

    Each check needs one resource, the lake that holds its table. A partition that no run ever materialised is not requested:
    its check has nothing to say. A run that was requested is not requested again, also where the cursor was lost.
    """
    lakes: dict[dg.AssetKey, str] = {}
    asked: dict[dg.AssetKey, list[dg.AssetCheckKey]] = defaultdict(list)
    for check in checks:
        (lake,) = check.op.required_resource_keys
        for key in check.check_keys:
            lakes[key.asset_key] = lake
            asked[key.asset_key].append(key)

    @dg.sensor(
        name=name,
        description="Runs the checks of keys and references of partitions that somebody has written around the platform.",
        target=dg.AssetSelection.checks(*checks),
        minimum_interval_seconds=seconds,
        default_status=dg.DefaultSensorStatus.RUNNING,
        required_resource_keys=set(lakes.values()),
        tags=pattern_tags("constraints_enforcer"),
    )
    def look(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        assert context.repository_def is not None  # noqa: S101 - a sensor of a code location
        graph = context.repository_def.asset_graph
        seen: Mapping[str, Sequence[Any]] = json.loads(context.cursor or "{}")
        now: dict[str, list[Any]] = {}
        requests: list[dg.RunRequest] = []
        for asset, keys in asked.items():
            node, label = graph.get(asset), asset.to_user_string()
            table = getattr(context.resources, lakes[asset]).table(asset, node.metadata)
            # Immutable versions are written by nobody else: their files are sealed.
            log = table.log() if type(table) is Table else None
            if log is None:
                continue
            now[label] = [str(log.table.metadata().id), log.version]
            if now[label] == seen.get(label):
                continue
            found = changed_around(log, _since(now[label], seen.get(label)))
            for change, tags in _parts(context.instance, node, log, found):
                run_key = f"{label} {now[label][0]} {change.version} {json.dumps(tags, sort_keys=True)}"
                tags = {**tags, AROUND: str(change.version), "written_around/operation": change.operation}
                requests.append(dg.RunRequest(run_key=run_key, tags=tags, asset_check_keys=keys))
        return dg.SensorResult(run_requests=requests, cursor=json.dumps(now, sort_keys=True))

    return look


def _since(now: Sequence[Any], seen: Sequence[Any] | None) -> int:
    """The version after which to look. A table that was never looked at, or made anew, has its newest commits looked at."""
    newest = int(now[1]) - COMMITS
    return max(newest, int(seen[1]) if seen and seen[0] == now[0] else -1, -1)


def _parts(
    instance: dg.DagsterInstance, node: AssetNode, log: TableLog, found: Mapping[Values, PartitionChange]
) -> Iterator[tuple[PartitionChange, dict[str, str]]]:
    """The newest foreign change of each stretch of partitions to check, with the tags of a run over it."""
    if not found:
        return
    newest = max(found.values(), key=lambda change: change.version)
    partitions = node.partitions_def
    if partitions is None:
        yield newest, {}
        return
    there = instance.get_materialized_partitions(node.key)
    every = partitions.get_partition_keys(dynamic_partitions_store=instance)
    changed = _keys(node, [key for key in every if key in there], log, found)
    # A range has every key between its ends, and cells of several dimensions do not follow each other.
    alone = isinstance(partitions, dg.MultiPartitionsDefinition)
    ranges = [(key, key) for key in changed] if alone else key_ranges(every, changed)
    for first, last in ranges[-RANGES_PER_LOOK:]:
        inside = every[every.index(first) : every.index(last) + 1]
        change = max((changed[key] for key in inside), key=lambda each: each.version)
        yield change, {PARTITION: first} if first == last else range_tags(first, last)


def _keys(
    node: AssetNode, known: Sequence[str], log: TableLog, found: Mapping[Values, PartitionChange]
) -> dict[str, PartitionChange]:
    """The partition keys that were changed: all that are known, where the log does not tell them apart."""
    newest = max(found.values(), key=lambda change: change.version)
    expression = node.metadata.get("partition_expr")
    if not known:
        return {}
    if expression is None:
        # Partitions that build on each other: the check looks at the whole table, once is enough.
        return {known[-1]: newest}
    assert node.partitions_def is not None  # noqa: S101 - asked for those with partitions only
    slice_, columns = make_slice(known, node.partitions_def, expression), log.partition_columns()
    if not set(slice_.columns) <= set(columns):
        return dict.fromkeys(known, newest)
    types = {field.name: str(getattr(field.type, "type", "")) for field in log.table.schema().fields}
    changed: dict[str, PartitionChange] = {}
    for values, change in found.items():
        key = slice_.key_of({c: _typed(value, types[c]) for c, value in zip(columns, values, strict=True)})
        if key is not None and (key not in changed or changed[key].version < change.version):
            changed[key] = change
    return changed


def _typed(value: str | None, type_: str) -> Any:
    """A partition value as the log writes it, as the value that it is; instants are in UTC there."""
    if value is None:
        return None
    if type_ == "date":
        return date.fromisoformat(value)
    return datetime.fromisoformat(value) if type_.startswith("timestamp") else value
