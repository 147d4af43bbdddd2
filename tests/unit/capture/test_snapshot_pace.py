"""A snapshot that cannot end in time is given up early, and the error says how long it would take."""

from __future__ import annotations

import pytest

from de_resources.capture.snapshot_pace import SnapshotPace, SnapshotTooLong
from de_resources.capture.source import CaptureSource

pytestmark = pytest.mark.pattern("change_data_capture")

SOURCE = CaptureSource("people", ("public.people",), "people")
LIMIT = 570.0


@pytest.mark.parametrize(
    ("rows", "seconds", "expected"),
    [
        (0, 0, 0),
        (600_000, 60, 6_000_000),  # 600 s by the estimate, which need not be true
        (10, 59, 10_000_000),  # not long enough to tell
        (600_000, 569, 0),  # tables that the database has not looked at
        (600_000, 569, 400_000),  # statistics of yesterday
    ],
)
def test_one_that_may_end_in_time_goes_on(rows: int, seconds: float, expected: int) -> None:
    SnapshotPace(SOURCE, LIMIT, expected).require(rows, seconds)


def test_one_that_surely_does_not_is_given_up_after_a_minute() -> None:
    with pytest.raises(SnapshotTooLong) as refused:
        SnapshotPace(SOURCE, LIMIT, 120_000_000).require(600_000, 60)
    assert refused.value.needed == 12_000
    said = str(refused.value)
    assert (
        "ends after 0:09:30: 600,000 row(s) were read in 0:01:00, so that all of them would take about 3:20:00" in said
    )
    assert "Raise `transaction.max.timeout.ms` of the broker" in said


@pytest.mark.parametrize("expected", [0, 400_000, 700_000])
def test_at_the_end_of_the_time_it_ends_whatever_was_expected(expected: int) -> None:
    with pytest.raises(SnapshotTooLong, match=r"600,000 row\(s\) were read in 0:09:30"):
        SnapshotPace(SOURCE, LIMIT, expected).require(600_000, LIMIT)
