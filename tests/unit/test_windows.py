"""Which window a value lies in, and when a window is over: pure, under a clock that the test holds."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

import dagster as dg
import pytest

from de_resources.delta.publish.windows import NoWindows, Windows, windows_of

pytestmark = pytest.mark.pattern("audit_write_audit_publish")

NOON = datetime(2024, 1, 2, 12, tzinfo=UTC)
HOURS = dg.HourlyPartitionsDefinition("2024-01-01-00:00")
TWO_HOURS = dg.HourlyPartitionsDefinition("2024-01-02-09:00", end_date="2024-01-02-11:00")
DAYS_OF_PARIS = dg.DailyPartitionsDefinition("2024-01-01", timezone="Europe/Paris")
H9, H10, H11 = (f"2024-01-02-{n:02}:00" for n in (9, 10, 11))
NAMED = Windows(by="hour", every=HOURS, event_time="at")


@pytest.mark.parametrize(
    ("every", "value", "key"),
    [
        (HOURS, H9, H9),
        (HOURS, datetime(2024, 1, 2, 9, 59, tzinfo=UTC), H9),
        (HOURS, datetime(2024, 1, 2, 9), H9),
        (HOURS, datetime(2024, 1, 2, 10, tzinfo=UTC), H10),
        (DAYS_OF_PARIS, date(2024, 1, 2), "2024-01-02"),
        (DAYS_OF_PARIS, datetime(2024, 1, 1, 23, 30, tzinfo=UTC), "2024-01-02"),
        (TWO_HOURS, datetime(2024, 1, 2, 10, 59, tzinfo=UTC), H10),
        # In no window: before the first one, after the last one, and what is no key.
        (TWO_HOURS, datetime(2024, 1, 2, 11, tzinfo=UTC), None),
        (TWO_HOURS, H11, None),
        (HOURS, datetime(2023, 12, 31, 23, tzinfo=UTC), None),
        (HOURS, "2023-12-31-23:00", None),
        (HOURS, "no hour", None),
        (HOURS, "", None),
    ],
)
def test_a_value_lies_in_one_window_or_in_none(
    every: dg.TimeWindowPartitionsDefinition, value: Any, key: str | None
) -> None:
    assert Windows(by="w", every=every, event_time="at").key_of(value) == key


@pytest.mark.parametrize(
    ("newest", "grace", "over"),
    [
        (None, 0, set()),
        (datetime(2024, 1, 2, 9, 59, tzinfo=UTC), 0, set()),
        (datetime(2024, 1, 2, 10, tzinfo=UTC), 0, {H9}),
        (datetime(2024, 1, 2, 10, 9, tzinfo=UTC), 10, set()),
        (datetime(2024, 1, 2, 11, 10, tzinfo=UTC), 10, {H9, H10}),
        (datetime(2024, 1, 2, 11, 10), 10, {H9, H10}),
        # A clock that is a century ahead closes what the clock on the wall would close: it is noon.
        (datetime(2124, 1, 1, tzinfo=UTC), 10, {H9, H10}),
    ],
)
def test_a_window_is_over_when_an_event_is_later_by_the_grace_and_not_of_the_future(
    newest: datetime | None, grace: int, over: set[str]
) -> None:
    windows = Windows(by="hour", every=HOURS, event_time="at", grace=timedelta(minutes=grace), clock=lambda: NOON)
    assert windows.over([H9, H10, H11], newest) == over


@pytest.mark.parametrize("path", [None, "nowhere:WINDOWS", f"{__name__}:HOURS", f"{__name__}:nothing"])
def test_windows_that_are_none_are_refused(path: str | None) -> None:
    assert windows_of("silver/orders", {"windows": f"{__name__}:NAMED"}) is NAMED
    with pytest.raises(NoWindows, match="silver/orders"):
        windows_of("silver/orders", {"windows": path})
