"""Are all partitions there that should be by now? Read from the instance's list of materialised keys."""

from bisect import bisect_right
from datetime import datetime, timedelta
from functools import partial
from itertools import takewhile
from typing import Any

import dagster as dg

from de_checks.baselines import time_dimension, window_of
from de_checks.factory import CheckRun, check_of_asset
from de_checks.freshness.clock import Clock, utc_now
from de_checks.freshness.flow import AGE, LAST_GOOD, STATE, FlowState, state_of
from de_checks.subject import Subject, spec_of
from de_resources.errors import PermanentError

NAMED = 5


class NotPartitioned(PermanentError):
    """A completeness check on an asset that has no partitions to be complete."""

    def __init__(self, asset: dg.AssetKey) -> None:
        self.asset = asset
        super().__init__(
            f"`{asset.to_user_string()}` has no partitions. Watch it with `cadence_policy` or `newest_event_check`."
        )


def completeness_check(
    asset: Subject,
    *,
    allowed_delay: timedelta = timedelta(0),
    since: timedelta | None = None,
    blocking: bool = False,
    now: Clock = utc_now,
    name: str = "partitions_are_complete",
) -> dg.AssetChecksDefinition:
    """A check of the whole asset: every partition that ended `allowed_delay` ago or longer is materialised.

    `since` limits the question to partitions that ended within that time, for assets whose history is never to be
    loaded. Partitions without a calendar (static, dynamic) are all expected at any time.

    It belongs to a watch (`de_assets.automation.triggers.watch`): nothing runs when a flow stops. The engine is not used.
    Metadata: `expected`, `missing`, `first_missing` (at most five keys), `complete_until`, the last good time: the end of the
    last partition before the first gap, and `age_seconds` since then. Raises `NotPartitioned` at definition.
    """
    spec = spec_of(asset)
    partitions = spec.partitions_def
    if partitions is None:
        raise NotPartitioned(spec.key)

    def judge(run: CheckRun) -> dg.AssetCheckResult:
        cutoff = now() - allowed_delay
        expected = expected_keys(partitions, cutoff, since, run.instance)
        there = run.instance.get_materialized_partitions(spec.key)
        missing = [key for key in expected if key not in there]
        figures: dict[str, Any] = {"expected": len(expected), "missing": len(missing)}
        if missing:
            figures["first_missing"] = dg.MetadataValue.json(missing[:NAMED])
        until = _complete_until(partitions, expected, set(missing))
        if until is not None:
            figures["complete_until"] = figures[LAST_GOOD] = dg.MetadataValue.timestamp(until)
            figures[AGE] = round(max(0.0, (cutoff - until).total_seconds()), 3)
        figures[STATE] = str(state_of(run, passed=not missing) if there else FlowState.NOT_BEGUN)
        return dg.AssetCheckResult(passed=not missing, description=_describe(expected, missing), metadata=figures)

    return check_of_asset(
        asset,
        name,
        judge,
        description=f"Every partition that ended {allowed_delay} ago or longer is materialised.",
        patterns=["flow_interruption_detector"],
        blocking=blocking,
        standing=True,
    )


def expected_keys(
    partitions: dg.PartitionsDefinition,
    cutoff: datetime,
    since: timedelta | None = None,
    instance: dg.DagsterInstance | None = None,
) -> list[str]:
    """The keys whose window ended by `cutoff` (and within `since` before it), in the partitioning's order."""
    keys = [str(k) for k in partitions.get_partition_keys(current_time=cutoff, dynamic_partitions_store=instance)]
    if time_dimension(partitions) is None:
        return keys
    # A partitioning with an end offset also lists windows that are still open.
    if isinstance(partitions, dg.TimeWindowPartitionsDefinition):
        # They are in time: a look at a few of them says where those end that are due.
        end_of = partial(_end, partitions)
        first = 0 if since is None else bisect_right(keys, cutoff - since, key=end_of)
        return keys[first : bisect_right(keys, cutoff, key=end_of)]
    ended = ((key, _end(partitions, key)) for key in keys)
    return [key for key, end in ended if end <= cutoff and (since is None or end > cutoff - since)]


def _end(partitions: dg.PartitionsDefinition, key: str) -> datetime:
    window = window_of(partitions, key)
    assert window is not None  # noqa: S101 - only called for partitionings with a calendar
    return window.end


def _complete_until(partitions: dg.PartitionsDefinition, expected: list[str], missing: set[str]) -> datetime | None:
    if time_dimension(partitions) is None:
        return None
    is_in_time = isinstance(partitions, dg.TimeWindowPartitionsDefinition)
    in_time = expected if is_in_time else sorted(expected, key=partial(_end, partitions))
    good = list(takewhile(lambda key: key not in missing, in_time))
    return _end(partitions, good[-1]) if good else None


def _describe(expected: list[str], missing: list[str]) -> str:
    if not missing:
        return f"All {len(expected):,} expected partitions are materialised."
    named = ", ".join(missing[:NAMED])
    more = f" and {len(missing) - NAMED:,} more" if len(missing) > NAMED else ""
    return f"{len(missing):,} of {len(expected):,} expected partitions are missing: {named}{more}."
