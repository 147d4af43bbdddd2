"""The world: the same for the same seed in any process, hour by hour, and shaped like a blog's."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import numpy as np
import pytest
from waiting import PATIENCE

from de_assets.sources.simulator import (
    World,
    devices,
    hours_between,
    legacy_visits,
    spread,
    user_changes,
    users_at,
    visit_messages,
)
from de_assets.sources.simulator.visits import draw_visits

WORLD = World(seed=3, users=300, guests=500)
START = datetime(2026, 2, 2, tzinfo=UTC)
DAY = hours_between(START, START + timedelta(days=1))

_DIGEST = """
import hashlib
from datetime import datetime, UTC
from de_assets.sources.simulator import *
hour = datetime(2026, 2, 2, 9, tzinfo=UTC)
messages = visit_messages(World(seed=3, users=300, guests=500), [hour], per_hour=500, irregularities=EVERYDAY)
print(hashlib.sha256(b"".join(message.value for message in messages)).hexdigest())
"""


def test_another_process_makes_the_same_bytes() -> None:
    from de_assets.sources.simulator import EVERYDAY

    messages = visit_messages(WORLD, [DAY[9]], per_hour=500, irregularities=EVERYDAY)
    here = hashlib.sha256(b"".join(message.value for message in messages)).hexdigest()
    there = subprocess.run(
        [sys.executable, "-c", _DIGEST], check=True, capture_output=True, text=True, timeout=PATIENCE
    )
    assert there.stdout.strip() == here


def test_another_seed_is_another_world() -> None:
    one, other = (draw_visits(World(seed=seed), DAY[9], 1000) for seed in (1, 2))
    assert not set(one.keys.tolist()) & set(other.keys.tolist())
    assert users_at(World(seed=1), START).keys().isdisjoint(users_at(World(seed=2), START))


@pytest.mark.parametrize("count", [0, 1, 19, 20, 21, 1000])
def test_an_hour_has_exactly_its_visits_in_order_of_time(count: int) -> None:
    visits = draw_visits(WORLD, DAY[9], count)
    start = int(DAY[9].timestamp() * 1000)
    assert len(visits) == len(set(visits.keys.tolist())) == count
    assert all(start <= moment < start + 3_600_000 for moment in visits.event_ms.tolist())
    assert np.all(np.diff(visits.event_ms) >= 0)


def test_visit_ids_are_unique_over_hours_and_streams() -> None:
    drawn = [draw_visits(WORLD, hour, 200, stream).keys for hour in DAY for stream in ("visits", "legacy")]
    assert len(np.unique(np.concatenate(drawn))) == 2 * 24 * 200


def test_sessions_go_on_over_the_end_of_an_hour() -> None:
    before, after = draw_visits(WORLD, DAY[9], 400), draw_visits(WORLD, DAY[10], 400)
    ending = set(before.persons[before.event_ms >= before.event_ms[0] + 3_000_000].tolist()) - {-1}
    beginning = set(after.persons[after.event_ms <= after.event_ms[0] + 600_000].tolist()) - {-1}
    assert len(ending & beginning) >= 3


def test_readers_come_in_sessions_of_several_pages() -> None:
    world = World(seed=3, users=100_000, guests=100_000)
    visits = draw_visits(world, DAY[9], 400)
    sessions = Counter(zip(visits.persons.tolist(), visits.guests.tolist(), strict=True))
    assert 2 < 400 / len(sessions) < 8
    assert max(sessions.values()) > 10


def test_everybody_owns_up_to_two_devices_and_they_are_many() -> None:
    visits = draw_visits(World(seed=3, users=2000, guests=2000), DAY[9], 20_000)
    guests = visits.persons < 0
    owners = np.where(guests, -1 - visits.guests, visits.persons)
    owned = Counter(owner for owner, _ in set(zip(owners.tolist(), visits.devices.tolist(), strict=True)))
    assert set(owned.values()) == {1, 2}
    assert len(set(visits.devices[guests].tolist())) > 200


def test_total_is_spread_exactly_with_the_rhythm_of_the_day() -> None:
    for total in (0, 1, 1000, 10_000_000):
        assert sum(spread(total, DAY)) == total
    counts = spread(100_000, DAY)
    assert counts[10] > 5 * counts[3]
    assert spread(5, []) == []


def test_profiles_change_in_order_and_never_after_their_deletion() -> None:
    changes = user_changes(WORLD, START - timedelta(days=800), START + timedelta(days=800))
    assert [c.time for c in changes] == sorted(c.time for c in changes)
    assert Counter(c.operation for c in changes)["I"] == 300
    for user in {c.user.id for c in changes}:
        own = [c for c in changes if c.user.id == user]
        assert [c.operation for c in own[:1]] == ["I"]
        assert all(c.operation == "U" for c in own[1:-1])
        assert len({c.time for c in own}) == len(own)
        assert all(one.user != two.user for one, two in pairwise(own) if two.operation == "U")


def test_windows_of_changes_put_together_are_all_changes() -> None:
    middle, end = START + timedelta(days=3), START + timedelta(days=9)
    assert user_changes(WORLD, START, middle) + user_changes(WORLD, middle, end) == user_changes(WORLD, START, end)
    halves = legacy_visits(WORLD, START, DAY[7]) + legacy_visits(WORLD, DAY[7], DAY[20])
    assert halves == legacy_visits(WORLD, START, DAY[20])


def test_legacy_rows_arrive_on_full_hours_too_and_some_are_deleted_later() -> None:
    states = legacy_visits(WORLD, START, START + timedelta(days=2))
    assert [s.ingestion_time for s in states] == sorted(s.ingestion_time for s in states)
    on_the_hour = [s for s in states if s.ingestion_time == s.ingestion_time.replace(minute=0, second=0, microsecond=0)]
    assert len(on_the_hour) > 100
    deleted = {s.visit_id: s for s in states if s.is_deleted}
    inserted = {s.visit_id: s for s in states if not s.is_deleted}
    both = deleted.keys() & inserted.keys()
    assert both
    assert all(deleted[key].ingestion_time > inserted[key].ingestion_time > inserted[key].event_time for key in both)


def test_devices_have_unique_keys_and_only_grow() -> None:
    now, later = devices(WORLD, START), devices(WORLD, START + timedelta(days=30))
    assert set(now) < set(later)
    assert len({(d.type, d.version) for d in later}) == len({(d.full_name, d.version) for d in later}) == len(later)
    assert {d.type for d in now} == {"lenovo", "galaxy", "htc", "lg", "iphone", "mac"}


def test_a_world_needs_a_time_zone_and_somebody_in_it() -> None:
    with pytest.raises(ValueError, match="time zone"):
        World(epoch=datetime(2026, 1, 1))
    for field in ({"users": 0}, {"users": 1_000_001}, {"guests": 0}):
        with pytest.raises(ValueError, match="at least one guest"):
            World(**field)
