"""How often, and how soon, a service that died is started again."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from de_resources.local.revival import Restarts

NOW = datetime(2026, 1, 5, 12, tzinfo=UTC)


@pytest.fixture
def restarts(tmp_path: Path) -> Restarts:
    return Restarts(tmp_path / "restarts.json")


def test_three_times_in_an_hour_and_later_each_time(restarts: Restarts) -> None:
    """Dead at every look, every ten seconds for two hours."""
    done = []
    for number in range(720):
        now = NOW + timedelta(seconds=10 * number)
        if restarts.allows("kafka", now):
            restarts.note("kafka", now)
            done.append((now - NOW).total_seconds())
    assert done[:3] == [0, 20, 60]
    assert done[3] == 3600, "when the first one is an hour ago"


def test_each_service_has_its_own_count(restarts: Restarts) -> None:
    for number in range(3):
        restarts.note("kafka", NOW + timedelta(minutes=number))
    later = NOW + timedelta(minutes=10)
    assert restarts.is_exhausted("kafka", later)
    assert not restarts.allows("kafka", later)
    assert restarts.allows("postgres", later)


def test_a_clock_that_was_set_back_keeps_no_service_down(restarts: Restarts) -> None:
    """The limit is reached; then it is yesterday, where the limit counts from the beginning: three, and no storm."""
    for number in range(3):
        restarts.note("kafka", NOW + timedelta(minutes=number))
    yesterday, done = NOW - timedelta(days=1), 0
    for number in range(300):
        now = yesterday + timedelta(seconds=10 * number)
        if restarts.allows("kafka", now):
            restarts.note("kafka", now)
            done += 1
    assert done == 3
    assert restarts.is_exhausted("kafka", now)


def test_a_clock_that_is_corrected_by_seconds_forgets_no_restart(restarts: Restarts) -> None:
    for number in range(3):
        restarts.note("kafka", NOW + timedelta(minutes=number))
    assert not restarts.allows("kafka", NOW)
    assert restarts.is_exhausted("kafka", NOW - timedelta(seconds=30))


def test_a_torn_record_is_none(restarts: Restarts) -> None:
    restarts.path.write_text('{"kafka": ["20')
    assert restarts.allows("kafka", NOW)
