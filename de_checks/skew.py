"""Is the load spread evenly over the storage? Pattern *Skew Detector*, across physical partitions or files.

Everything comes from the statistics in Delta's transaction log: no scan, no engine.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Literal
from urllib.parse import unquote

import dagster as dg

from de_checks.baselines import NoSeason, time_dimension, window_of
from de_checks.factory import CheckRun, check_per_key
from de_checks.history import accepted
from de_checks.per_key import Key, Materialized, Verdict
from de_checks.spread import Bound, judge_spread
from de_checks.subject import Subject, spec_of
from de_resources.delta.log import TableLog
from de_resources.delta.slices import Slice, make_slice
from de_resources.delta.table import TableMissing
from de_resources.errors import PermanentError

ACCEPT_TAG = "de/skew_accepted"
"""Run tag with the reason for which a person accepts how a load is spread."""

Load = dict[str, int]
"""Rows per part: a physical partition (`hour=3`) or a file."""


class PartsUnknown(PermanentError):
    """A table whose files cannot be attributed to the asset's partitions."""

    def __init__(self, asset: dg.AssetKey, missing: list[str]) -> None:
        self.asset, self.missing = asset, missing
        super().__init__(
            f"The files of `{asset.to_user_string()}` do not tell to which partition their rows belong: the table "
            f"is not physically partitioned by {', '.join(missing)}. Add that to the contract's `partitioned_by`."
        )


def skew_check(
    asset: Subject,
    *,
    max_deviation: float = 0.5,
    over: Literal["partitions", "files"] = "partitions",
    expected_parts: int | None = None,
    within: timedelta | None = None,
    events: bool = False,
    severity: dg.AssetCheckSeverity = dg.AssetCheckSeverity.ERROR,
    blocking: bool = False,
    name: str = "load_is_balanced",
) -> dg.AssetChecksDefinition:
    """A check, per partition key, that rows are spread evenly over the parts of the key's slice.

    Parts are the combinations of the table's physical partition values inside the slice (the 24 hours of a day), or its
    files. The measure is the relative standard deviation: the standard deviation of rows per part over their mean; 0 is
    perfectly even, and it fails above `max_deviation`. `expected_parts` (24) counts parts that hold no file as empty
    ones; without it a silent hour would go unseen. Fewer than two parts, and no rows at all, are balanced. With `events`,
    rows are things that happen one by one, and what chance explains is balanced as well.

    Where a key is a single part, such as an hour, `within` puts beside it those before it that end so long ago at most: the
    hours of the last day. Only keys that this check found good, and no blocking check has refused, stand beside another
    one: an hour that was too hot makes none of the next day's look cold.

    A person accepts a spread by executing the check with the run tag `de/skew_accepted` and the reason. The table is judged as
    its log has it now. A rerun judges again. Needs the resource `lake`. Metadata: as of `judge_spread`. Raises `PartsUnknown`
    where the table's layout does not follow the asset's partitions, `TableMissing` where there is no table; at definition
    `NoSeason` for `within` of an asset without time partitions.
    """
    subject, bound = spec_of(asset), Bound(max_deviation, events)
    if within is not None and time_dimension(subject.partitions_def) is None:
        raise NoSeason(subject.key)

    def judge(run: CheckRun, materialized: Mapping[Key, Materialized]) -> Mapping[Key, Verdict]:
        table = run.table()
        log = table.log()
        if log is None:
            raise TableMissing(table.name)
        beside = _keys_before(run, list(materialized), within) if within is not None else {}
        everything = list(dict.fromkeys([*(key for keys in beside.values() for key in keys), *materialized]))
        loads = _loads(log, subject, everything, over)
        known: dict[Key, bool] = {}
        for key in materialized:
            for each in beside.get(key, []):
                if each not in known:  # judged already: they come in the order of the partitions
                    known[each] = accepted(run, each) is not None
            good = [each for each in beside.get(key, []) if known[each]]
            verdict = _verdict(loads, [*good, key], bound, expected_parts)
            if verdict.severity != severity:
                verdict = replace(verdict, severity=severity)
            run.verdicts[key] = verdict.accepted_for(run.tags.get(ACCEPT_TAG))
        return run.verdicts

    return check_per_key(
        asset,
        name,
        judge,
        description=f"The relative standard deviation of rows over {over} is at most {max_deviation:g}.",
        patterns=["skew_detector"],
        blocking=blocking,
        resources=["lake"],
    )


def _keys_before(run: CheckRun, keys: list[Key], within: timedelta) -> dict[Key, list[Key]]:
    """For each key the materialised ones that end `within` before its own end, oldest first."""
    partitions = run.asset.partitions_def
    known = {
        key: window
        for key in run.instance.get_materialized_partitions(run.asset.key)
        if _has(partitions, key) and (window := window_of(partitions, key))
    }
    in_time = sorted((window.end, key) for key, window in known.items())
    ends = [end for end, _ in in_time]
    before: dict[Key, list[Key]] = {}
    for key in keys:
        own = window_of(partitions, key)
        assert own is not None  # noqa: S101 - asked for at definition
        near = in_time[bisect_right(ends, own.end - within) : bisect_left(ends, own.end)]
        before[key] = [other for _, other in near]
    return before


def _has(partitions: dg.PartitionsDefinition | None, key: str) -> bool:
    """Whether the calendar still has the partition; one that moved on may not."""
    return partitions is not None and partitions.has_partition_key(key)


def _loads(log: TableLog, asset: dg.AssetSpec, keys: list[Key], over: str) -> dict[Key, Load]:
    slice_ = _slice(asset, keys)
    columns = log.partition_columns()
    missing = [c for c in (slice_.columns if slice_ else ()) if c not in columns]
    if missing:
        raise PartsUnknown(asset.key, missing)
    loads: dict[Key, Load] = {key: defaultdict(int) for key in keys}
    for file in log.files().to_pylist():
        values = {c: file[f"partition.{c}"] for c in columns}
        key = slice_.key_of(values) if slice_ else None
        if slice_ is None or key is not None:
            part = unquote(file["path"]) if over == "files" else _label(values)
            loads[key][part] += file["num_records"] or 0
    return loads


def _slice(asset: dg.AssetSpec, keys: list[Key]) -> Slice | None:
    if asset.partitions_def is None:
        return None
    return make_slice([k for k in keys if k is not None], asset.partitions_def, asset.metadata["partition_expr"])


def _label(values: Mapping[str, object]) -> str:
    return ", ".join(f"{column}={value}" for column, value in values.items())


def _verdict(loads: Mapping[Key, Load], keys: list[Key], bound: Bound, expected_parts: int | None) -> Verdict:
    """The verdict on these keys together; one of several that holds nothing is an empty part."""
    together: Load = {}
    empty = 0
    for key in keys:
        together |= loads[key]
        empty += len(keys) > 1 and not loads[key]
    return judge_spread(together, bound, max(empty, (expected_parts or 0) - len(together)))
