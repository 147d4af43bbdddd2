"""Was a partition there in time, and if not: was its source late, or were we slow?"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from typing import Any

import dagster as dg

from de_checks.baselines import time_dimension
from de_checks.factory import CheckRun, check_per_key
from de_checks.freshness.clock import duration
from de_checks.per_key import Key, Materialized, Verdict
from de_checks.sla.attempts import Attempt, attempts, of_asset
from de_checks.subject import Subject, spec_of
from de_resources.contract.sla import Sla
from de_resources.errors import PermanentError

NAME = "is_ready_in_time"


class NoWindow(PermanentError):
    """A deadline of an asset whose partitions have no end in time."""

    def __init__(self, asset: dg.AssetKey) -> None:
        self.asset = asset
        super().__init__(
            f"`{asset.to_user_string()}` has no time partitions, so nothing says from when on it is late. Leave `ready_within` "
            "out of its contract."
        )


@dataclass(frozen=True)
class PartitionTimes:
    """The way of one partition: `due_from` is the end of its window, `arrived` when the last of its inputs was there."""

    due_from: datetime
    arrived: datetime
    started: datetime
    ready: datetime


def deadline_check(
    asset: Subject, sla: Sla, inputs: Collection[dg.AssetSpec] = (), *, since: datetime | None = None
) -> dg.AssetChecksDefinition:
    """A check, per partition key, that its rows were there `sla.ready_within` after the end of its window, for the first time.

    A miss says whose it is. *Event time*: the last input came later than `sla.input_within`. *Processing time*: from then on
    it took longer than what remains, with the part of it that the run waited. Both can be true. A partition that is written
    again was there when it was written first. `inputs` are the assets that it reads: those with partitions by time count with
    the ones inside of its window; where none is recorded, the request of the run is taken for the arrival.

    Windows that ended before `since` are told and not judged: what is filled in afterwards, such as last year's log, was late
    before anybody promised anything. Default: the asset's first materialisation.

    Metadata: `sla/ready_seconds`, `sla/arrived_seconds` (both after the window), `sla/waited_seconds`, `sla/own_seconds`, and
    `sla/fault`. Raises `NoWindow` and `ValueError` at definition.
    """
    subject = spec_of(asset)
    if sla.ready_within is None:
        raise ValueError("A deadline needs `ready_within`.")
    if time_dimension(subject.partitions_def) is None:
        raise NoWindow(subject.key)

    def judge(run: CheckRun, materialized: Mapping[Key, Materialized]) -> Mapping[Key, Verdict]:
        begun = since or _begun(run)
        written_by = cache(partial(_written_by, run.instance, run.asset.key))
        ways = {key: _times(run, key or "", inputs, written_by) for key in materialized}
        return {key: judge_times(way, sla, is_past=way.due_from < begun) for key, way in ways.items()}

    return check_per_key(
        asset,
        NAME,
        judge,
        description=f"There at most {duration(sla.ready_within.total_seconds())} after the end of its window, of which "
        f"{duration(sla.input_within.total_seconds())} are its sources'.",
        patterns=["sla_misses_detector"],
    )


def judge_times(times: PartitionTimes, sla: Sla, *, is_past: bool = False) -> Verdict:
    """The verdict on the way of one partition."""
    ready_within = sla.ready_within or timedelta(0)
    ours = ready_within - sla.input_within
    arrived = max(times.arrived, times.due_from)
    own = times.ready - arrived
    figures: dict[str, Any] = {
        "sla/ready_seconds": (times.ready - times.due_from).total_seconds(),
        "sla/arrived_seconds": (times.arrived - times.due_from).total_seconds(),
        "sla/waited_seconds": max((times.started - arrived).total_seconds(), 0.0),
        "sla/own_seconds": own.total_seconds(),
    }
    if is_past:
        return Verdict(True, "Not judged: its window had ended before there was anything here.", figures)
    late = times.ready - times.due_from - ready_within
    if late <= timedelta(0):
        return Verdict(
            True, f"It was there {duration(figures['sla/ready_seconds'])} after the end of its window.", figures
        )
    source = times.arrived - times.due_from - sla.input_within
    said, faults = [f"It was {duration(late.total_seconds())} late."], []
    if source > timedelta(0):
        faults.append("source")
        said.append(f"Its input came {duration(source.total_seconds())} later than it may (event time).")
    if own > ours:
        faults.append("platform")
        said.append(
            f"Then it took {duration(own.total_seconds())} of {duration(ours.total_seconds())} (processing time), of which "
            f"{duration(figures['sla/waited_seconds'])} waiting."
        )
    return Verdict(False, " ".join(said), {**figures, "sla/fault": " and ".join(faults)})


def _begun(run: CheckRun) -> datetime:
    wanted = dg.AssetRecordsFilter(run.asset.key)
    (first,) = run.instance.fetch_materializations(wanted, limit=1, ascending=True).records
    return _moment(first.timestamp)


def _written_by(
    instance: dg.DagsterInstance, asset: dg.AssetKey, run_id: str
) -> tuple[Attempt | None, datetime | None]:
    """The attempt of a run that wrote the asset, and when the run was asked for: one run writes many partitions."""
    record = instance.get_run_record_by_id(run_id)
    return of_asset(attempts(instance, run_id), asset), record.create_timestamp.astimezone(UTC) if record else None


def _times(
    run: CheckRun,
    key: str,
    inputs: Collection[dg.AssetSpec],
    written_by: Callable[[str], tuple[Attempt | None, datetime | None]],
) -> PartitionTimes:
    calendar = time_dimension(run.asset.partitions_def)
    assert calendar is not None  # noqa: S101 - asked at definition
    window = calendar.time_window_for_partition_key(key)
    (first,) = run.instance.fetch_materializations(
        dg.AssetRecordsFilter(run.asset.key, asset_partitions=[key]), limit=1, ascending=True
    ).records
    ready = _moment(first.timestamp)
    attempt, asked_for = written_by(first.run_id)
    started = attempt.started if attempt and attempt.started and attempt.started <= ready else ready
    known = [time for spec in inputs if (time := _arrival(run.instance, spec, window, started)) is not None]
    arrived = max(known) if known else min(asked_for or started, started)
    return PartitionTimes(window.end.astimezone(UTC), arrived, started, ready)


def _arrival(
    instance: dg.DagsterInstance, spec: dg.AssetSpec, window: dg.TimeWindow, before: datetime
) -> datetime | None:
    """When the last of an input's partitions inside of the window was there for the first time, of those before a moment."""
    times = []
    for key in inside(spec, window):
        wanted = dg.AssetRecordsFilter(spec.key, asset_partitions=[key])
        records = instance.fetch_materializations(wanted, limit=1, ascending=True).records
        times += [time for each in records if (time := _moment(each.timestamp)) <= before]
    return max(times, default=None)


def inside(spec: dg.AssetSpec, window: dg.TimeWindow) -> Iterator[str]:
    """The partitions of an input that lie in a window, or the one that holds it; none without time partitions."""
    calendar = spec.partitions_def
    if isinstance(calendar, dg.TimeWindowPartitionsDefinition):
        found = calendar.get_partition_keys_in_time_window(window)
        yield from found or []


def _moment(timestamp: float) -> datetime:
    return datetime.fromtimestamp(timestamp, UTC)
