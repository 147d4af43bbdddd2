"""What ends a session, rule by rule and all together, against plain Python over all visits at once."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from de_assets.transforms.data_value.closing_rules import (
    ClosedSession,
    ClosingPage,
    GreatestLength,
    Inactivity,
    OpenSession,
    Rules,
    Visit,
    Visitor,
    over,
)

pytestmark = pytest.mark.pattern("stateful_sessionizer")

MICROSECOND = timedelta(microseconds=1)
GAP, LONGEST = 30, 100
RULES: Rules = (
    Inactivity(GAP * MICROSECOND),
    ClosingPage(frozenset({"logout"})),
    GreatestLength(LONGEST * MICROSECOND),
)
FOR_EVER = 10_000


def visits(*told: tuple[int, str]) -> list[Visit]:
    return [Visit(at, f"{number:03}", page) for number, (at, page) in enumerate(told)]


def sessions(*told: tuple[int, str], rules: Rules = RULES) -> list[tuple[list[int], str]]:
    """First and last visit and number of visits of each session, and what ended it."""
    _, closed = Visitor().came(visits(*told)).settled(FOR_EVER, rules)
    return [([c.session.started_at, c.session.ended_at, c.session.visits], c.closed_by) for c in closed]


def test_a_pause_as_long_as_the_gap_parts_two_sessions_and_a_shorter_one_does_not() -> None:
    assert sessions((0, "a"), (29, "b"), (58, "c")) == [([0, 58, 3], "inactivity")]
    assert sessions((0, "a"), (30, "b")) == [([0, 0, 1], "inactivity"), ([30, 30, 1], "inactivity")]


def test_a_logout_belongs_to_its_session_and_ends_it() -> None:
    assert sessions((0, "a"), (5, "logout"), (6, "b")) == [([0, 5, 2], "closing_page"), ([6, 6, 1], "inactivity")]
    # Of visits of one instant the last one tells where the visitor is.
    assert sessions((5, "logout"), (5, "b"), (9, "c")) == [([5, 9, 3], "inactivity")]
    assert sessions((5, "b"), (5, "logout"), (9, "c")) == [([5, 5, 2], "closing_page"), ([9, 9, 1], "inactivity")]


def test_who_never_pauses_is_cut_at_the_greatest_length() -> None:
    busy = [(at, "a") for at in range(0, 201, 20)]
    assert sessions(*busy) == [
        ([0, 80, 5], "greatest_length"),
        ([100, 180, 5], "greatest_length"),
        ([200, 200, 1], "inactivity"),
    ]


def test_the_first_rule_in_time_is_told_and_at_one_instant_the_first_in_order() -> None:
    session = OpenSession(0, 70, 3, "a", "b")
    assert over(session, RULES) == (100, "inactivity")
    assert over(session, RULES[::-1]) == (100, "greatest_length")


def test_rules_that_never_end_a_session_are_refused() -> None:
    with pytest.raises(ValueError, match="such as `Inactivity`"):
        Visitor(OpenSession(0, 0, 1, "a", "a")).wakes_at((ClosingPage(frozenset({"logout"})),))


def test_a_session_is_over_when_all_visits_before_its_end_are_known_and_not_before() -> None:
    came = Visitor().came(visits((0, "a"), (10, "b")))
    assert came.wakes_at(RULES) == 0
    # What the watermark has not passed waits: an earlier visit may still come.
    left, closed = came.settled(5, RULES)
    assert (closed, left.wakes_at(RULES), [v.at for v in left.waiting]) == ([], 10, [10])
    left, closed = left.settled(39, RULES)
    assert (closed, left.wakes_at(RULES)) == ([], 40)
    left, closed = left.settled(40, RULES)
    assert closed == [ClosedSession(OpenSession(0, 10, 2, "a", "b"), "inactivity")]
    assert (left, left.wakes_at(RULES)) == (Visitor(), None)


TOLD = st.lists(
    st.tuples(st.integers(0, 300), st.sampled_from(["a", "b", "logout"])), max_size=25, unique_by=lambda each: each[0]
)


def by_hand(told: Sequence[tuple[int, str]]) -> list[tuple[list[int], str]]:
    """All three rules, visit after visit. It shares no code with them."""
    runs: list[list[tuple[int, str]]] = []
    for at, page in sorted(told):
        last = runs[-1] if runs else None
        if last and last[-1][1] != "logout" and at - last[-1][0] < GAP and at - last[0][0] < LONGEST:
            last.append((at, page))
        else:
            runs.append([(at, page)])
    found = []
    for run in runs:
        idle, long = run[-1][0] + GAP, run[0][0] + LONGEST
        why = "closing_page" if run[-1][1] == "logout" else "inactivity" if idle <= long else "greatest_length"
        found.append(([run[0][0], run[-1][0], len(run)], why))
    return found


@given(TOLD, st.lists(st.integers(0, 330), max_size=6), st.randoms(use_true_random=False))
def test_any_order_copies_and_cuts_give_the_sessions_of_one_pass(
    told: list[tuple[int, str]], watermarks: list[int], chance: st.DataObject
) -> None:
    """A visit comes in any batch before the watermark has passed it; some come twice."""
    expected = by_hand(told)
    coming = visits(*told)
    visitor, found = Visitor(), []
    for watermark in [*sorted(watermarks), FOR_EVER]:
        due = [v for v in coming if v.at < watermark or chance.random() < 0.5]  # type: ignore[attr-defined]
        coming = [v for v in coming if v not in due]
        chance.shuffle(due)  # type: ignore[attr-defined]
        visitor, closed = visitor.came([*due, *due[:2]]).settled(watermark, RULES)
        found += [([c.session.started_at, c.session.ended_at, c.session.visits], c.closed_by) for c in closed]
        wakes = visitor.wakes_at(RULES)
        assert wakes is None or wakes >= watermark
    assert sorted(found) == expected
    assert visitor == Visitor()


def test_copies_of_a_visit_that_differ_in_what_they_lack_are_one_visit_and_stop_nobody() -> None:
    """A producer that sent a record without its page, and then with it, in either order: the same one is taken."""
    known, unknown = Visit(0, "v", "logout", "there"), Visit(0, "v", None)
    later = [Visit(5, "w", None), Visit(5, "w", None)]
    for came in ([known, unknown], [unknown, known]):
        left, closed = Visitor().came([*came, *later]).settled(FOR_EVER, RULES)
        assert left == Visitor()
        # The one without a page is the first in order: it ends no session.
        assert closed == [ClosedSession(OpenSession(0, 5, 2, None, None), "inactivity")]
