"""From Dagster's event log to a listener: every run that has begun or ended since the last time, in order, at least once.

What is sent counts as told when the listener has taken all events of a run; a listener that is away stops the relay, which goes
on there the next time. What would fail again and again stops nothing: an event that the listener refuses for good is kept in a
file, and a run whose log makes no events is told without its steps; both are said. Two relays of one home do not run at once:
the second one finds nothing to do.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dagster as dg
from filelock import FileLock, Timeout
from openlineage.client import OpenLineageClient
from openlineage.client.event_v2 import RunEvent

from de_resources.atomic_files import publish, staged
from de_resources.openlineage.datasets import Datasets
from de_resources.openlineage.events import TOLD, RunTold
from de_resources.openlineage.transport import UnusableListener, client_of, files, is_refusal

_POSITION, _LOCK = "position.json", "position.lock"
_TAILS = (
    dg.DagsterEventType.RUN_START,
    dg.DagsterEventType.RUN_SUCCESS,
    dg.DagsterEventType.RUN_FAILURE,
    dg.DagsterEventType.RUN_CANCELED,
)
_AT_ONCE = 200


@dataclass
class Relayed:
    """What a relay has done: `events` were taken; `away` says why it stopped before the end, if it did."""

    runs: int = 0
    events: int = 0
    away: str = ""
    refused: int = 0
    """Events that the listener will never take."""
    without_steps: list[str] = field(default_factory=list)
    """Runs of whose steps no events could be made, each with the class of the error."""


@dataclass(frozen=True)
class Relay:
    """Tells the runs of an instance; `folder` keeps how far it has come, and by default the events."""

    instance: dg.DagsterInstance
    folder: Path
    namespace: str
    parents: Mapping[str, Iterable[str]] = field(default_factory=dict)
    client: OpenLineageClient | None = None

    def relay(self, *, at_most: int = 1000) -> Relayed:
        """Tell at most so many changes of runs. Never raises for a listener, nor for a place or a variable that is none.

        The next call goes on where this one stopped.
        """
        done = Relayed()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with FileLock(self.folder / _LOCK, timeout=0):
                self._relay(done, at_most)
        except Timeout:
            done.away = "another relay is at work"
        except UnusableListener as error:
            done.away = str(error)
        except OSError as error:
            done.away = (
                f"{type(error).__name__}: {self.folder} cannot be written, in which it remembers how far it came"
            )
        return done

    def _relay(self, done: Relayed, at_most: int) -> None:
        position = self._position()
        client = self.client or client_of(self.folder, datetime.now(UTC).date())
        for kind, change in self._changes(position, at_most):
            for event in self._events(kind, change, done):
                if not self._is_done_with(event, client, done):
                    return
            done.runs += kind != dg.DagsterEventType.RUN_START
            position[kind.value] = change.storage_id
            self._keep(position)

    def _is_done_with(self, event: RunEvent, client: OpenLineageClient, done: Relayed) -> bool:
        """Whether the next event may follow: this one was taken, or never will be."""
        try:
            client.emit(event)
        except Exception as error:  # noqa: BLE001 - whatever else a listener's client raises, it is away
            if not is_refusal(error):
                done.away = f"{type(error).__name__}: the listener did not take an event"
                return False
            files(self.folder, "refused", datetime.now(UTC).date()).emit(event)
            done.refused += 1
            return True
        done.events += 1
        return True

    def _changes(
        self, position: Mapping[str, int], at_most: int
    ) -> Iterator[tuple[dg.DagsterEventType, dg.EventLogRecord]]:
        """Beginnings and ends of runs behind the position, in the order in which they happened."""
        found = [(kind, each) for kind in _TAILS for each in self._tail(kind, position.get(kind.value, 0), at_most)]
        return iter(sorted(found, key=lambda each: each[1].storage_id)[:at_most])

    def _tail(self, kind: dg.DagsterEventType, after: int, at_most: int) -> Iterator[dg.EventLogRecord]:
        taken = 0
        while taken < at_most:
            behind = dg.RunStatusChangeRecordsFilter(kind, after_storage_id=after)  # type: ignore[arg-type]
            records = self.instance.fetch_run_status_changes(behind, limit=_AT_ONCE, ascending=True).records
            yield from records
            if len(records) < _AT_ONCE:
                return
            taken += len(records)
            after = records[-1].storage_id

    def _events(self, kind: dg.DagsterEventType, change: dg.EventLogRecord, done: Relayed) -> list[RunEvent]:
        run = self.instance.get_run_by_id(change.run_id)
        if run is None:  # somebody has deleted it
            return []
        told = RunTold(run, Datasets(self.namespace, self.parents))
        if kind == dg.DagsterEventType.RUN_START:
            return [told.start(change.timestamp)]
        log = self.instance.all_logs(change.run_id, of_type=set(TOLD))
        try:
            return list(told.end(log))
        except Exception as error:  # noqa: BLE001 - metadata are anybody's, and one run must not stop the others
            done.without_steps.append(f"{run.run_id} ({type(error).__name__})")
            return list(told.end(entry for entry in log if not entry.step_key))

    def _position(self) -> dict[str, int]:
        try:
            found: dict[str, Any] = json.loads((self.folder / _POSITION).read_text())
            return {kind: int(place) for kind, place in found.items()}
        except FileNotFoundError:
            return {}
        except (ValueError, TypeError, AttributeError):
            raise UnusableListener(
                f"{self.folder / _POSITION}",
                "says no longer how far the events were told",
                "Remove it: all runs are then told again, and a listener knows them by their ids.",
            ) from None

    def _keep(self, position: Mapping[str, int]) -> None:
        path = self.folder / _POSITION
        staged(path).write_text(json.dumps(position))
        publish(path)
