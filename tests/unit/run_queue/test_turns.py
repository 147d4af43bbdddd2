"""Whose turn it is, against a plain model of a line of runs."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from de_resources.run_queue.places import Place
from de_resources.run_queue.turns import Member, turns

pytestmark = pytest.mark.pattern("single_runner")

NOW = 1_000.0


def member(number: int, queued_at: float = 0.0, run: str = "") -> Member:
    key = f"2026-01-{number:02d}"
    return Member(run or f"run-{number}", Place("line", ("gold/line",), key, key, float(number)), queued_at)


def decided(
    queued: Sequence[Member], running: Sequence[Member] = (), failed: Sequence[int] = (), settle: float = 2.0
) -> dict[str, str]:
    def held(place: Place) -> str | None:
        earlier = [number for number in failed if number < place.begin]
        return f"failed {min(earlier)}" if earlier else None

    return dict(turns(queued, running, held, now=NOW, settle=settle))


def test_the_earliest_partition_goes_and_each_other_one_says_whom_it_follows() -> None:
    waits = decided([member(3), member(1), member(2)])
    assert waits == {
        "run-1": "",
        "run-2": "2026-01-01 (run run-1), which is queued before it",
        "run-3": "2026-01-02 (run run-2), which is queued before it",
    }


def test_nothing_goes_beside_a_run_even_of_an_earlier_partition() -> None:
    assert decided([member(1)], running=[member(3)]) == {"run-1": "2026-01-03 (run run-3), which runs"}


def test_what_failed_holds_what_comes_after_it_and_not_its_own_rerun() -> None:
    waits = decided([member(3), member(2, run="again"), member(1)], failed=[2])
    assert waits == {"run-1": "", "again": "2026-01-01 (run run-1), which is queued before it", "run-3": "failed 2"}


def test_the_first_waits_for_an_earlier_one_launched_at_the_same_moment() -> None:
    assert "same moment" in decided([member(3, queued_at=NOW - 1.9)])["run-3"]
    assert decided([member(3, queued_at=NOW - 2.0)]) == {"run-3": ""}


def test_two_runs_of_one_partition_go_as_they_were_queued() -> None:
    waits = decided([member(1, 5.0, "later"), member(1, 4.0, "first")])
    assert [run for run, reason in waits.items() if not reason] == ["first"]


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(1, 9)), min_size=1, max_size=12),
    st.sets(st.integers(1, 9), max_size=2),
)
def test_in_any_world_runs_do_not_overlap_and_keep_their_order(
    launches: list[tuple[int, int]], fails: set[int]
) -> None:
    """In each step launches come, and one run may go that ends in the next. Partitions in `fails` fail the first time."""
    waiting: list[Member] = []
    came = sorted((step, index, number) for index, (step, number) in enumerate(launches))
    running: list[Member] = []
    failed: set[int] = set()
    good: set[int] = set()
    ended: list[tuple[int, frozenset[int]]] = []
    for step in range(40):
        waiting += [member(number, float(step), f"{index}") for at, index, number in came if at == step]
        line = sorted(each.place.begin for each in waiting)
        turn = [run for run, reason in decided(waiting, running, sorted(failed), settle=0.0).items() if not reason]
        for each in running:
            number = int(each.place.begin)
            (failed if number in fails and number not in good | failed else good).add(number)
            failed -= good
        running = [each for each in waiting if each.run_id in turn]
        assert len(running) <= 1
        if running:
            assert running[0].place.begin == line[0], "an earlier partition was waiting"
            ended.append((int(running[0].place.begin), frozenset(failed)))
        waiting = [each for each in waiting if each not in running]
    assert all(not any(other < number for other in held) for number, held in ended), "none goes past one that failed"
    left = {int(each.place.begin) for each in waiting}
    assert not left or (failed and min(left) > min(failed)), "only what comes after a failure still waits"
