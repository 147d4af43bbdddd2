"""The partitions of the graph, bounded by the calendar that is in force when this module is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

import dagster as dg

from de_assets.calendar import Calendar

if TYPE_CHECKING:
    from de_resources.delta.log import TableLog

CALENDAR = Calendar.load()
hourly = CALENDAR.hourly
daily = CALENDAR.daily
weekly = CALENDAR.weekly

# A log may begin in the middle of a day: the day then consists of the hours that exist.
hours_of_day = dg.TimeWindowPartitionMapping(allow_nonexistent_upstream_partitions=True)
# The same holds for a week: its first days may lie before the log, and its last ones in the future.
hours_of_week = dg.TimeWindowPartitionMapping(allow_nonexistent_upstream_partitions=True)
days_of_week = dg.TimeWindowPartitionMapping(allow_nonexistent_upstream_partitions=True)

# What was carried over from the day before; the first day has none before it.
day_before = dg.TimeWindowPartitionMapping(start_offset=-1, end_offset=-1)


LOOK_BACK_HOURS = 0
"""Hours before its own in which a landed visit may have come already. Producers repeat a record within its hour; whoever
has one that repeats across hours sets this, and an hour then waits for that many before it."""


def with_look_back(partitions: int) -> dg.TimeWindowPartitionMapping | None:
    """A partition reads its own one and that many before it upstream, as far as they exist; None: its own only."""
    if partitions == 0:
        return None
    return dg.TimeWindowPartitionMapping(start_offset=-partitions, allow_nonexistent_upstream_partitions=True)


def calendar_now() -> datetime:
    """The present as far as the calendar goes: in a closed one, time ends where its sources end."""
    now = datetime.now(UTC)
    return now if CALENDAR.end is None else min(now, CALENDAR.end)


def calendar_end() -> datetime | None:
    """When the sources end for good; None: never, in an open calendar."""
    return CALENDAR.end


def is_whole(window: dg.TimeWindow) -> bool:
    """Whether the calendar has all of the window: a log may begin and end in the middle of a day."""
    return window.start >= CALENDAR.start and (CALENDAR.end is None or window.end <= CALENDAR.end)


def rows_in_calendar(log: TableLog | None) -> Mapping[Any, int]:
    """Rows per partition value of the calendar; other partitions belong to an earlier calendar."""
    if log is None:
        return {}
    rows = log.rows_by_partition()
    if not log.partition_columns():
        return rows
    hours, days = hours_of_calendar(), _bounds(daily)
    return {value: count for value, count in rows.items() if _within(value[0], hours, days)}


Bounds = tuple[datetime, datetime] | None
"""The start of the first partition and of the last one that is there by now; None: there is none yet."""


def hours_of_calendar() -> Bounds:
    """The first and the last hour that the calendar has by now."""
    return _bounds(hourly)


def _bounds(partitions: dg.TimeWindowPartitionsDefinition) -> Bounds:
    first, last = partitions.get_first_partition_window(), partitions.get_last_partition_window()
    return (first.start, last.start) if first and last else None


def _within(value: Any, hours: Bounds, days: Bounds) -> bool:
    if isinstance(value, datetime):
        return hours is not None and hours[0] <= value <= hours[1]
    return days is not None and isinstance(value, date) and days[0].date() <= value <= days[1].date()
