"""The visits of one hour as columns: readers in sessions that go on over the hour's end, each hour computable alone.

Traffic runs on *lanes*. Time on a lane is cut into windows of the lane's length (3 to 90 minutes); a window is one
session of one reader, found by hashing lane and window, so that neighbouring hours agree without knowing of each
other. A lane has 20 visits an hour, three minutes apart on average; an hour of n visits uses n / 20 lanes.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import numpy as np

from de_assets.sources.landing import full_hour
from de_assets.sources.simulator.content import ADS, PAGES, REFERRALS
from de_assets.sources.simulator.population import milliseconds
from de_assets.sources.simulator.randomness import Int64s, UInt64s, generator, mixed, salt
from de_assets.sources.simulator.world import World

HOUR_MS = 3_600_000
_VISITS_PER_LANE = 20
_SESSION_MINUTES = np.array([3, 6, 10, 15, 20, 30, 45, 90], dtype=np.int64)
_PAGE_WEIGHTS = 1 / np.arange(2, len(PAGES) + 2)
_PAGE_SHARES = _PAGE_WEIGHTS / _PAGE_WEIGHTS.sum()
_SHARE_PEOPLE = 0.65
_SHARE_PRIVATE = 1 / 7


@dataclass
class SimulatedColumns:
    """Equally long columns, ordered by event time. Whoever injects a defect may change them."""

    keys: UInt64s
    """Unique in the world; the visit id is its 16 hexadecimal digits."""
    event_ms: Int64s
    persons: Int64s
    """Number of the user, or -1 for a guest."""
    guests: Int64s
    """Number of the guest who shows where the person cannot."""
    devices: Int64s
    """A random number for the device in use, the same throughout a session."""
    origins: Int64s
    """Referral and advertisement of the session, as a number below `len(REFERRALS) * len(ADS)`."""
    pages: Int64s
    private: Int64s

    def __len__(self) -> int:
        return len(self.keys)

    def visit_ids(self, rows: Int64s) -> list[str]:
        """Ids of the rows, in their order."""
        return [f"{key:016x}" for key in self.keys[rows].tolist()]


def draw_visits(world: World, hour: datetime, count: int, stream: str = "visits") -> SimulatedColumns:
    """Draw exactly `count` visits with event times in `[hour, hour + 1 h)`; each `stream` is traffic of its own."""
    start = full_hour(hour)
    rng = generator(world.seed, stream, start.isoformat())
    row = np.arange(count, dtype=np.int64)
    lanes, event_ms = _slots(milliseconds(start), row, rng)
    order = np.argsort(event_ms, kind="stable")
    lanes, event_ms = lanes[order], event_ms[order]
    sessions = _sessions(world, lanes, event_ms, stream)
    persons = _persons(world, sessions)
    guests = (sessions % np.uint64(world.guests)).astype(np.int64)
    numbers = (np.uint64(milliseconds(start) // HOUR_MS % 2**32) << np.uint64(32)) + row.astype(np.uint64)
    traits = mixed(sessions)
    return SimulatedColumns(
        keys=mixed(numbers + salt(world.seed, stream)),
        event_ms=event_ms,
        persons=persons,
        guests=guests,
        devices=_devices(world, persons, guests, traits),
        origins=(traits % np.uint64(len(REFERRALS) * len(ADS))).astype(np.int64),
        pages=rng.choice(len(PAGES), size=count, p=_PAGE_SHARES),
        private=(rng.random(count) < _SHARE_PRIVATE).astype(np.int64),
    )


def _slots(start_ms: int, row: Int64s, rng: np.random.Generator) -> tuple[Int64s, Int64s]:
    """Give each row a lane and a moment; the visits of a lane share the hour evenly, each somewhere in its part."""
    lanes, slot = np.divmod(row, _VISITS_PER_LANE)
    in_lane = np.minimum(_VISITS_PER_LANE, len(row) - lanes * _VISITS_PER_LANE)
    offsets = (slot + rng.random(len(row))) * HOUR_MS / in_lane
    return lanes, start_ms + np.minimum(offsets.astype(np.int64), HOUR_MS - 1)


def _sessions(world: World, lanes: Int64s, event_ms: Int64s, stream: str) -> UInt64s:
    """A number per session: hash of the lane and of the window of its length in which the moment falls."""
    lane_hash = mixed(lanes.astype(np.uint64) + salt(world.seed, f"{stream}/lanes"))
    length_ms = _SESSION_MINUTES[(lane_hash % np.uint64(len(_SESSION_MINUTES))).astype(np.int64)] * 60_000
    shift_ms = (lane_hash >> np.uint64(32)).astype(np.int64) % length_ms
    window = (event_ms + shift_ms) // length_ms
    return mixed(lane_hash + window.astype(np.uint64))


def _persons(world: World, sessions: UInt64s) -> Int64s:
    """The reader of each session; low numbers come more often, guests are -1."""
    share = (sessions >> np.uint64(40)).astype(np.float64) / 2**24
    popularity = (share / _SHARE_PEOPLE) ** 2
    persons = np.minimum(popularity * world.users, world.users - 1).astype(np.int64)
    return np.where(share < _SHARE_PEOPLE, persons, -1)


def _devices(world: World, persons: Int64s, guests: Int64s, traits: UInt64s) -> Int64s:
    """A number for the device in use: everybody owns two, and a session stays on one of them."""
    owners = np.where(persons >= 0, persons, world.users + guests).astype(np.uint64)
    which = traits >> np.uint64(63)
    return (mixed(owners * np.uint64(2) + which) >> np.uint64(1)).astype(np.int64)
