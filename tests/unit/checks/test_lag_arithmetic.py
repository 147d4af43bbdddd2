"""The worst values over partitions against a table worked out by hand; the outlook against records read one by one."""

from __future__ import annotations

from random import Random

import pytest

from de_resources.lag import Backlog, Outlook, Speed, Spread, outlook

pytestmark = pytest.mark.pattern("lag_detector")

BY_HAND = [
    # values, max, P95, P90 by nearest rank
    ([], 0, 0, 0),
    ([7], 7, 7, 7),
    ([0, 0, 900], 900, 900, 900),
    ([*range(1, 11)], 10, 10, 9),
    ([*range(1, 21)], 20, 19, 18),
    ([0] * 99 + [1000], 1000, 0, 0),
    ([0] * 90 + [50] * 10, 50, 50, 0),
    ([*range(100, 0, -1)], 100, 95, 90),
]


@pytest.mark.parametrize(("values", "most", "p95", "p90"), BY_HAND)
def test_the_worst_values_of_a_table_worked_out_by_hand(
    values: list[float], most: float, p95: float, p90: float
) -> None:
    assert Spread.of(values) == Spread(most, p95, p90)


def test_one_partition_that_stands_still_is_not_averaged_away() -> None:
    assert Spread.of([0] * 11 + [1_200]).max == 1_200


def simulated(backlog: Backlog, speed: Speed, kept: float | None, step: float, until: float) -> Outlook:
    """Records one by one: where the reader is after each step, and how old is what it reads next."""
    density = backlog.unread / backlog.age

    def written_at(record: float) -> float:
        return -backlog.age + record / density if record < backlog.unread else (record - backlog.unread) / speed.writes

    now = read = 0.0
    caught_up = lost = None
    while now < until:
        if read >= backlog.unread + speed.writes * now:
            caught_up = now
            break
        # A record that nobody writes is not waited for.
        written = written_at(read) if read < backlog.unread or speed.writes else now
        if kept is not None and lost is None and now - written >= kept:
            lost = now
        now += step
        read = now * speed.reads
    return Outlook(caught_up, lost)


@pytest.mark.parametrize("seed", range(60))
def test_the_outlook_is_that_of_records_read_one_by_one(seed: int) -> None:
    chance = Random(seed)  # noqa: S311 - not for secrets
    backlog = Backlog(chance.randint(50, 5_000), chance.uniform(10, 900))
    speed = Speed(chance.choice([0, *[chance.uniform(0.5, 30)] * 5]), chance.choice([0, chance.uniform(0.5, 20)]))
    kept = chance.choice([None, chance.uniform(5, 1_500)])
    found = outlook(backlog, speed, kept)
    known = simulated(backlog, speed, kept, step=0.05, until=6_000)
    if found.caught_up is None or found.caught_up < 5_900:
        assert found.caught_up == pytest.approx(known.caught_up, abs=0.5, rel=0.01)
    if found.lost is None or found.lost < 5_900:
        assert found.lost == pytest.approx(known.lost, abs=0.5, rel=0.01)


def test_who_reads_nothing_has_what_is_left_of_the_retention() -> None:
    assert outlook(Backlog(10, 3_600), Speed(0, 1), kept=86_400) == Outlook(None, 82_800)


def test_who_reads_as_fast_as_is_written_loses_nothing_and_never_catches_up() -> None:
    assert outlook(Backlog(100, 100), Speed(1, 1), kept=1_000) == Outlook(None, None)


def test_behind_the_backlog_the_speed_of_the_writer_decides() -> None:
    """Ten seconds through the backlog; from then on each second of reading brings half a second of writing."""
    assert outlook(Backlog(10, 10), Speed(1, 2), kept=100) == Outlook(None, 190)


def test_nothing_unread_is_level_with_the_writer() -> None:
    assert outlook(Backlog(0, 0), Speed(0, 50), kept=10) == Outlook(0.0, None)
