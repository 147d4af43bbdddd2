"""Dynamic Late Data Integrator: what is decided about partitions that changed after they were processed."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from de_resources.delta.log.changed_partitions import PartitionChange
from de_resources.late_data.plan import ConsumerPartition, LateVerdict, Policy, Situation, judge

pytestmark = pytest.mark.pattern("dynamic_late_data_integrator")

PRESENT = datetime(2024, 1, 20, 12, tzinfo=UTC)
LONG_AGO = PRESENT - timedelta(hours=10)
POLICY = Policy(max_age=timedelta(days=10), settle=timedelta(minutes=2), max_attempts=2)


def partition(
    day: int, changed: int | None, read: int | None = 0, *, run: int | None = 1, at: datetime = LONG_AGO, **more: object
) -> ConsumerPartition:
    """A day whose source changed in a version, and whose last run had read another one."""
    change = PartitionChange(changed, at, "WRITE") if changed is not None else None
    end = datetime(2024, 1, day, tzinfo=UTC) + timedelta(days=1)
    return ConsumerPartition(f"2024-01-{day:02}", end, change, read, run, **more)  # type: ignore[arg-type]


def verdicts(*partitions: ConsumerPartition, stateful: bool = False, **situation: object) -> list[LateVerdict]:
    moment = Situation(PRESENT, PRESENT, **situation)  # type: ignore[arg-type]
    return [found.verdict for found in judge(partitions, moment, POLICY, stateful=stateful)]


def test_only_what_changed_after_it_was_read_is_requested() -> None:
    assert verdicts(
        partition(15, changed=4, read=4), partition(16, changed=5, read=4), partition(17, changed=None)
    ) == [
        LateVerdict.UP_TO_DATE,
        LateVerdict.REQUESTED,
        LateVerdict.UP_TO_DATE,
    ]


def test_a_partition_that_nobody_processed_is_not_late() -> None:
    assert verdicts(partition(15, changed=4, run=None)) == [LateVerdict.UNPROCESSED]


def test_a_run_that_did_not_say_what_it_read_is_no_proof() -> None:
    assert verdicts(partition(15, changed=0, read=None)) == [LateVerdict.REQUESTED]


def test_the_current_partition_does_not_select_itself() -> None:
    assert verdicts(partition(19, changed=9), partition(20, changed=9)) == [LateVerdict.REQUESTED, LateVerdict.CURRENT]
    assert verdicts(partition(20, changed=9), stateful=True) == [LateVerdict.CURRENT]


def test_the_age_has_a_limit() -> None:
    assert verdicts(partition(9, changed=9), partition(10, changed=9)) == [LateVerdict.TOO_OLD, LateVerdict.REQUESTED]


def test_a_change_is_left_alone_for_a_while() -> None:
    moments = [PRESENT - timedelta(seconds=seconds) for seconds in (119, 121)]
    found = verdicts(*(partition(15 + n, changed=9, at=at) for n, at in enumerate(moments)))
    assert found == [LateVerdict.SETTLING, LateVerdict.REQUESTED]


def test_what_is_claimed_written_or_held_back_is_not_requested() -> None:
    claimed, free = partition(15, changed=9, claim="c"), partition(16, changed=9)
    assert verdicts(claimed, free) == [LateVerdict.UNDER_WAY, LateVerdict.REQUESTED]
    assert verdicts(free, busy={free.key}) == [LateVerdict.UNDER_WAY]
    assert verdicts(free, held={free.key}) == [LateVerdict.HELD_BACK]


def test_attempts_are_counted_for_one_change_and_begin_anew_with_the_next() -> None:
    failed = partition(15, changed=9, attempts=2, need="version 9")
    assert verdicts(failed) == [LateVerdict.GIVEN_UP]
    (again,) = judge([replace(failed, attempts=1)], Situation(PRESENT, PRESENT), POLICY)
    assert (again.verdict, again.attempt) == (LateVerdict.REQUESTED, 2)
    (anew,) = judge(
        [replace(failed, change=PartitionChange(10, LONG_AGO, "WRITE"))], Situation(PRESENT, PRESENT), POLICY
    )
    assert (anew.verdict, anew.attempt) == (LateVerdict.REQUESTED, 1)


def test_stateful_one_at_a_time_and_all_after_it_wait() -> None:
    days = [partition(n, changed=9 if n in (15, 17) else 0, run=n) for n in (14, 15, 16, 17, 18)]
    found = verdicts(*days, partition(19, changed=9, run=None), stateful=True)
    after = [LateVerdict.AFTER_ANOTHER] * 3
    assert found == [LateVerdict.UP_TO_DATE, LateVerdict.REQUESTED, *after, LateVerdict.UNPROCESSED]


def test_stateful_what_ran_before_its_predecessor_follows_it_also_when_it_had_read_everything() -> None:
    days = [
        partition(15, changed=9, read=12, run=100),
        partition(16, changed=0, read=12, run=50),
        partition(17, 0, run=51),
    ]
    assert verdicts(*days, stateful=True) == [LateVerdict.UP_TO_DATE, LateVerdict.REQUESTED, LateVerdict.AFTER_ANOTHER]


def test_stateful_a_refused_day_is_not_followed_until_a_person_runs_it() -> None:
    days = [partition(5, changed=9, run=5), partition(6, changed=0, run=6), partition(15, changed=0, run=15)]
    assert verdicts(*days, stateful=True) == [LateVerdict.TOO_OLD, LateVerdict.UP_TO_DATE, LateVerdict.UP_TO_DATE]
    days[0] = replace(days[0], processed_version=9, processed_by=20)
    assert verdicts(*days, stateful=True) == [LateVerdict.UP_TO_DATE, LateVerdict.REQUESTED, LateVerdict.AFTER_ANOTHER]


def test_stateful_a_day_that_was_given_up_holds_those_after_it() -> None:
    days = [partition(15, changed=9, run=15, attempts=2, need="version 9"), partition(16, changed=9, run=16)]
    assert verdicts(*days, stateful=True) == [LateVerdict.GIVEN_UP, LateVerdict.AFTER_ANOTHER]


@given(
    writes=st.lists(st.tuples(st.integers(10, 18), st.integers(1, 9)), min_size=1, max_size=25),
    stateful=st.booleans(),
    data=st.data(),
)
def test_whatever_lands_whenever_the_end_is_what_one_computation_over_everything_gives(
    writes: list[tuple[int, int]], stateful: bool, data: st.DataObject
) -> None:
    """Rows land in any day at any time, also while a day is computed; runs happen when the plan asks for them."""
    landed: dict[int, list[int]] = {n: [] for n in range(10, 19)}
    known = {n: partition(n, changed=None, run=n) for n in landed}
    result = dict.fromkeys(landed, 0)
    version, runs = 0, 100

    def run(number: int, *, landing_meanwhile: bool) -> None:
        nonlocal runs
        read = version
        base = result[number - 1] if stateful and number > 10 else 0
        result[number] = base + sum(landed[number])
        if landing_meanwhile and writes:
            land()
        runs += 1
        known[number] = replace(known[number], processed_version=read, processed_by=runs)

    def land() -> None:
        nonlocal version
        number, value = writes.pop()
        version += 1
        landed[number].append(value)
        known[number] = replace(known[number], change=PartitionChange(version, LONG_AGO, "WRITE"))

    for _ in range(1000):
        if writes and data.draw(st.booleans()):
            land()
        found = judge(list(known.values()), Situation(PRESENT, PRESENT), POLICY, stateful=stateful)
        asked = [int(j.partition.key[-2:]) for j in found if j.verdict == LateVerdict.REQUESTED]
        for number in asked:
            run(number, landing_meanwhile=data.draw(st.booleans()))
        if not writes and not asked:
            break
    sums = {n: sum(values) for n, values in landed.items()}
    assert result == ({n: sum(sums[m] for m in sums if m <= n) for n in sums} if stateful else sums)
