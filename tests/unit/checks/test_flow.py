"""What a flow owes and what is overdue: arithmetic on times, without an instance and without a table."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from de_checks.freshness.commits import commit_signs
from de_checks.freshness.flow import describe, stand_of
from de_checks.freshness.signs import WHOLE, Sign
from de_resources.contract.freshness import Freshness, UnusableFreshness
from de_resources.delta.log.data_commits import DataCommit

pytestmark = pytest.mark.pattern("flow_interruption_detector")

HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
NINE = datetime(2024, 1, 8, 9, tzinfo=UTC)


@pytest.mark.parametrize(
    ("last", "due"),
    [
        (NINE, NINE + 2 * HOUR),
        (NINE + 59 * MINUTE, NINE + 2 * HOUR),
        (NINE - timedelta(microseconds=1), NINE + HOUR),
    ],
    ids=["first moment of an hour", "last minute of it", "just before it"],
)
def test_a_continuous_flow_owes_a_record_in_the_next_unit_of_the_clock(last: datetime, due: datetime) -> None:
    assert Freshness(every=HOUR).expected_by(last) == due
    assert Freshness(every=HOUR, delay=5 * MINUTE).expected_by(last) == due + 5 * MINUTE


@given(st.lists(st.integers(0, 59), min_size=2, max_size=40))
def test_a_flow_with_a_record_in_every_hour_is_never_silent(minutes: list[int]) -> None:
    """However long it is between two of them: from 9:00 to 10:59 is nearly two hours, and no hour is without."""
    promise, times = Freshness(every=HOUR), [NINE + n * HOUR + minute * MINUTE for n, minute in enumerate(minutes)]
    for before, after in pairwise(times):
        assert promise.expected_by(before) > after
        assert promise.expected_by(before) - after <= HOUR


def test_an_irregular_flow_owes_one_before_its_longest_silence_is_over() -> None:
    promise = Freshness(silence=3 * HOUR)
    assert promise.expected_by(NINE + 7 * MINUTE) == NINE + 3 * HOUR + 7 * MINUTE
    assert describe(promise) == "nothing is silent for longer than 3 h"
    assert describe(Freshness(every=HOUR, delay=MINUTE)) == "every 1 h brings something, at most 1 min late"


@pytest.mark.parametrize(
    "declared",
    [
        {"silence": -HOUR},
        {"silence": timedelta(0)},
        {"every": timedelta(0)},
        {"every": HOUR, "silence": HOUR},
        {"column": "event_time"},
        {"silence": HOUR, "delay": -MINUTE},
        {"silence": HOUR, "tolerance": 2},
    ],
    ids=["negative", "none at all", "no unit", "both", "neither", "negative delay", "unknown word"],
)
def test_what_is_no_promise_is_refused(declared: dict[str, object]) -> None:
    with pytest.raises(UnusableFreshness):
        Freshness.of(declared)


def test_one_silent_part_is_found_among_those_that_flow() -> None:
    signs = {"eu": Sign(NINE), "us": Sign(NINE - 4 * HOUR), "new": Sign(None)}
    flow = stand_of(signs, Freshness(silence=2 * HOUR), NINE + HOUR)
    assert flow.silent == ["us"]
    assert flow.last_good == NINE - 4 * HOUR, "until then all of them flowed"
    assert set(flow.due) == {"eu", "us"}, "a part that never began owes nothing"


def test_a_flow_is_in_time_to_the_very_moment() -> None:
    promise = Freshness(silence=HOUR)
    assert stand_of({WHOLE: Sign(NINE)}, promise, NINE + HOUR).silent == []
    assert stand_of({WHOLE: Sign(NINE)}, promise, NINE + HOUR + timedelta(microseconds=1)).silent == [WHOLE]


def test_what_the_log_has_forgotten_is_silent_since_then_at_least() -> None:
    flow = stand_of({WHOLE: Sign(None, before=NINE)}, Freshness(silence=HOUR), NINE + 2 * HOUR)
    assert flow.silent == [WHOLE]
    assert flow.last_good == NINE


def commit(version: int, at: datetime, *hours: int) -> DataCommit:
    """A commit that brought rows of these hours, counted from nine o'clock; none: housekeeping."""
    return DataCommit(version, at, "WRITE", tuple({"hour": str(n)} for n in hours))


def window(values: object) -> tuple[datetime, datetime]:
    number = int(values["hour"])  # type: ignore[index]
    return NINE + number * HOUR, NINE + (number + 1) * HOUR


def sign(commits: list[DataCommit], now: datetime) -> Sign:
    return commit_signs(iter(commits[::-1]), now, {WHOLE}, None, window)[WHOLE]


@given(st.integers(1, 12), st.lists(st.tuples(st.booleans(), st.integers(0, 11)), max_size=12), st.data())
def test_neither_housekeeping_nor_a_backfill_hides_when_a_source_fell_silent(
    lived: int, after: list[tuple[bool, int]], data: st.DataObject
) -> None:
    """The source lived for so many hours, each loaded ten minutes after its end; then people worked on the table."""
    commits: list[DataCommit] = []
    for hour in range(lived):
        at = NINE + (hour + 1) * HOUR + 10 * MINUTE
        commits.append(commit(len(commits), at, hour))
        if data.draw(st.booleans()):
            commits.append(
                commit(len(commits), at + MINUTE, *([data.draw(st.integers(0, hour))] * data.draw(st.booleans())))
            )
    died = NINE + lived * HOUR
    for n, (backfill, hour) in enumerate(after):
        at = died + (n + 1) * 24 * HOUR
        commits.append(commit(len(commits), at, *([hour % lived] if backfill else [])))

    found = sign(commits, died + 365 * 24 * HOUR)

    assert found.at is not None
    assert abs(found.at - died) <= timedelta(microseconds=1)


def test_rows_that_come_while_their_window_is_open_are_a_sign_of_their_own_time() -> None:
    assert sign([commit(0, NINE + 20 * MINUTE, 0)], NINE + 40 * MINUTE).at == NINE + 20 * MINUTE


def test_a_window_of_the_future_says_nothing_and_neither_does_a_commit_of_the_future() -> None:
    now = NINE + 3 * HOUR
    ahead = [commit(0, NINE + HOUR, 0), commit(1, now, 90_000), commit(2, now + 48 * HOUR, 1)]
    found = sign(ahead, now)
    assert found.at == NINE + HOUR - timedelta(microseconds=1)
    assert (found.ahead, found.furthest) == (1, now + 48 * HOUR)


def test_each_part_has_its_own_sign_and_the_log_is_read_no_further_than_that_takes() -> None:
    read: list[int] = []

    def commits():  # type: ignore[no-untyped-def]
        for version in range(99, -1, -1):
            read.append(version)
            at = NINE + version * MINUTE
            yield DataCommit(version, at, "WRITE", ({"region": "us" if version % 10 == 0 else "eu"},))

    found = commit_signs(commits(), NINE + 24 * HOUR, {"eu", "us"}, "region")
    assert {part: each.at for part, each in found.items()} == {"eu": NINE + 99 * MINUTE, "us": NINE + 90 * MINUTE}
    assert min(read) >= 89


def test_a_part_that_no_kept_commit_tells_of_is_silent_since_before_them() -> None:
    found = commit_signs(iter([commit(7, NINE)]), NINE + HOUR, {WHOLE}, None, window)
    assert found == {WHOLE: Sign(None, before=NINE)}
