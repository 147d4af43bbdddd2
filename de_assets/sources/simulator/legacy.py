"""Visits of the system that the blog had before, as rows of a database table that is loaded by its ingestion time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from de_assets.sources.simulator.content import PAGES
from de_assets.sources.simulator.hours import hours_between
from de_assets.sources.simulator.population import population
from de_assets.sources.simulator.randomness import generator
from de_assets.sources.simulator.visits import draw_visits
from de_assets.sources.simulator.world import World

_STREAM = "legacy"
_SHARE_ON_THE_HOUR = 0.1
_LONGEST_DELAY_SECONDS = 600
_SHARE_DELETED = 0.03
_LONGEST_HOURS_TO_DELETION = 48
_HORIZON = timedelta(hours=_LONGEST_HOURS_TO_DELETION + 2)


@dataclass(frozen=True, slots=True)
class LegacyVisit:
    """A state of a row. A soft deletion is a further state of the same `visit_id` with a later `ingestion_time`."""

    visit_id: str
    event_time: datetime
    user_id: str
    page: str
    ip: str
    is_deleted: bool
    ingestion_time: datetime


def legacy_visits(world: World, start: datetime, end: datetime, per_hour: int = 60) -> list[LegacyVisit]:
    """States with an ingestion time in `[start, end)`, in the order in which the database takes them.

    Rows arrive up to ten minutes after their event, except every tenth, which arrives on the next full hour exactly,
    where an interval closed at both ends would take it twice. Three in a hundred are deleted within two days. Windows
    side by side give what one window over both gives.
    """
    hours = hours_between(_floor(start - _HORIZON), _floor(end) + timedelta(hours=1))
    states = [state for hour in hours for state in _hour(world, hour, per_hour) if start <= state.ingestion_time < end]
    return sorted(states, key=lambda state: (state.ingestion_time, state.visit_id))


def _hour(world: World, hour: datetime, count: int) -> Iterator[LegacyVisit]:
    """All states, ever, of the rows whose events fall into the hour."""
    visits, people = draw_visits(world, hour, count, _STREAM), population(world)
    rng = generator(world.seed, f"{_STREAM}/states", hour.isoformat())
    who = people.appearances(visits.persons, visits.guests, visits.event_ms).tolist()
    for row in range(count):
        event_time = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=int(visits.event_ms[row]))
        delay = timedelta(milliseconds=int(rng.integers(_LONGEST_DELAY_SECONDS * 1000)))
        on_the_hour = rng.random() < _SHARE_ON_THE_HOUR
        state = LegacyVisit(
            visit_id=f"legacy-{int(visits.keys[row]):016x}",
            event_time=event_time,
            user_id=people.ids[who[row]],
            page=PAGES[int(visits.pages[row])],
            ip=people.addresses[who[row]],
            is_deleted=False,
            ingestion_time=hour + timedelta(hours=1) if on_the_hour else event_time + delay,
        )
        yield state
        until_deleted = timedelta(seconds=int(rng.integers(1, _LONGEST_HOURS_TO_DELETION * 3600)))
        if rng.random() < _SHARE_DELETED:
            yield replace(state, is_deleted=True, ingestion_time=state.ingestion_time + until_deleted)


def _floor(moment: datetime) -> datetime:
    return moment.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
