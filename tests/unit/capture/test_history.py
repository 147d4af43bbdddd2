"""Which histories of a database hold the changes that a topic knows."""

from __future__ import annotations

import pytest

from de_resources.capture.envelope import Position
from de_resources.capture.history import AnotherDatabase, DatabaseId, TimelineHistory, as_lsn, parse_lsn
from de_resources.capture.source import CaptureSource

pytestmark = pytest.mark.pattern("change_data_capture")

SOURCE = CaptureSource("people", ("public.people",), "people")
FIRST = DatabaseId("71")
SECOND = DatabaseId("71", 2, 100)
# It left its first timeline at 100, and its log goes to 300.
NOW = TimelineHistory(SECOND, 300, {FIRST: 100})


@pytest.mark.parametrize(
    ("position", "known"),
    [(99, FIRST), (100, SECOND), (300, SECOND), (300, None), (0, None)],
)
def test_what_this_history_holds_is_gone_on_from(position: int, known: DatabaseId | None) -> None:
    NOW.require_continues(SOURCE, Position(position, 0), known)


@pytest.mark.parametrize(
    ("position", "known", "why"),
    [
        (5, DatabaseId("72"), "of system 72, timeline 1, this is system 71, timeline 2 since 0/64"),
        (100, FIRST, "went only to 0/64"),  # committed after the switch, on the branch that was given up
        (50, DatabaseId("71", 2, 40), "timeline 2 since 0/28"),  # a copy that was promoted elsewhere
        (50, DatabaseId("71", 3, 200), "timeline 3"),  # a later one: this server is an older copy
        (301, SECOND, "they go to 0/12D"),
        (301, None, "they go to 0/12D"),
    ],
    ids=[
        "another system",
        "a branch given up",
        "another branch",
        "a later timeline",
        "beyond the log",
        "unknown, beyond",
    ],
)
def test_what_it_does_not_hold_is_refused(position: int, known: DatabaseId | None, why: str) -> None:
    with pytest.raises(AnotherDatabase, match=why):
        NOW.require_continues(SOURCE, Position(position, 0), known)


def test_an_identity_survives_the_headers_of_a_record_and_positions_their_text() -> None:
    for id_ in (FIRST, SECOND):
        assert DatabaseId.of(dict(id_.headers)) == id_
    assert DatabaseId.of({"commit_lsn": b"1"}) is None
    for number in (0, 1, 2**32 - 1, 2**32, 2**40 + 255):
        assert parse_lsn(as_lsn(number)) == number
