"""When a step began and ended, from the events of its run: its last attempt, and neither the queue nor attempts that failed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

import dagster as dg

_BEGINS = {dg.DagsterEventType.STEP_START, dg.DagsterEventType.STEP_RESTARTED}
_ENDS = {
    dg.DagsterEventType.STEP_SUCCESS,
    dg.DagsterEventType.STEP_FAILURE,
    dg.DagsterEventType.STEP_UP_FOR_RETRY,
    dg.DagsterEventType.STEP_SKIPPED,
}
_WRITES = {dg.DagsterEventType.ASSET_MATERIALIZATION}
_PLANS = {dg.DagsterEventType.ASSET_MATERIALIZATION_PLANNED}


@dataclass
class Attempt:
    """The last attempt of one step. `ended` None: it runs. `planned` are the assets that the step writes."""

    step: str
    number: int = 0
    started: datetime | None = None
    ended: datetime | None = None
    written: Counter[str] = field(default_factory=Counter)
    """How many partitions of each asset this attempt has recorded; 1 for one without partitions."""
    planned: set[str] = field(default_factory=set)

    @property
    def runs(self) -> bool:
        """Whether it began and did not end."""
        return self.started is not None and self.ended is None

    @property
    def seconds(self) -> float | None:
        """How long it took; None where it runs, or where the clock was set back meanwhile."""
        if self.started is None or self.ended is None or self.ended < self.started:
            return None
        return (self.ended - self.started).total_seconds()


def attempts(instance: dg.DagsterInstance, run_id: str) -> dict[str, Attempt]:
    """The last attempt of each step of a run. One read of the event log."""
    wanted = _BEGINS | _ENDS | _WRITES | _PLANS
    return from_events(_plain(instance.all_logs(run_id, of_type=wanted)))


@dataclass(frozen=True)
class StepEvent:
    """What is needed of an event."""

    kind: dg.DagsterEventType
    step: str
    time: datetime
    asset: str | None = None


def from_events(events: Iterable[StepEvent]) -> dict[str, Attempt]:
    """The last attempts, from the events of a run in their order."""
    found: dict[str, Attempt] = {}
    for event in events:
        attempt = found.setdefault(event.step, Attempt(event.step))
        if event.kind in _BEGINS:
            attempt.number, attempt.started, attempt.ended = attempt.number + 1, event.time, None
            attempt.written = Counter()
        elif event.kind in _ENDS:
            attempt.ended = event.time
        elif event.kind in _WRITES and event.asset:
            attempt.written[event.asset] += 1
        elif event.asset:
            attempt.planned.add(event.asset)
    return found


def of_asset(found: Mapping[str, Attempt], asset: dg.AssetKey) -> Attempt | None:
    """The attempt that wrote the asset."""
    name = asset.to_user_string()
    return next((attempt for attempt in found.values() if attempt.written[name]), None)


def _plain(entries: Iterable[dg.EventLogEntry]) -> Iterable[StepEvent]:
    for entry in entries:
        event = entry.dagster_event
        if event is None or event.step_key is None:
            continue
        asset = event.asset_key.to_user_string() if event.asset_key else None
        yield StepEvent(event.event_type, event.step_key, datetime.fromtimestamp(entry.timestamp, UTC), asset)
