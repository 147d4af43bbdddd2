"""Which earlier windows a window of data may be compared with, nearest first. Knows calendars, no data."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from itertools import islice
from typing import Literal

import dagster as dg

from de_resources.errors import PermanentError

Season = Literal["last", "same_weekday"]
"""`last`: the windows just before. `same_weekday`: the same weekday, and hour, of the weeks before."""

_LOOK_BACK: dict[Season, int] = {"last": 28, "same_weekday": 4}


class NoSeason(PermanentError):
    """A comparison by weekday of data that is not partitioned by time."""

    def __init__(self, asset: dg.AssetKey) -> None:
        self.asset = asset
        super().__init__(
            f"`{asset.to_user_string()}` has no time partitions, so no weekday to compare with. Use `against='last'`."
        )


def time_dimension(partitions: dg.PartitionsDefinition | None) -> dg.TimeWindowPartitionsDefinition | None:
    """The calendar of a partitioning, or None where it has none."""
    if isinstance(partitions, dg.MultiPartitionsDefinition):
        found = (d.partitions_def for d in partitions.partitions_defs)
        return next((d for d in found if isinstance(d, dg.TimeWindowPartitionsDefinition)), None)
    return partitions if isinstance(partitions, dg.TimeWindowPartitionsDefinition) else None


def window_of(partitions: dg.PartitionsDefinition | None, key: str | None) -> dg.TimeWindow | None:
    """The time that a partition stands for; None where its partitioning has no calendar."""
    calendar = time_dimension(partitions)
    if calendar is None or key is None:
        return None
    if isinstance(partitions, dg.MultiPartitionsDefinition):
        parts = partitions.get_partition_key_from_str(key).keys_by_dimension
        key = next(parts[d.name] for d in partitions.partitions_defs if d.partitions_def == calendar)
    return calendar.time_window_for_partition_key(key)


def earlier_keys(partitions: dg.PartitionsDefinition, key: str, season: Season) -> list[str]:
    """The keys that `key` may be compared with, nearest first: 28 windows before, or 4 weeks.

    In a multi-dimensional partitioning the other dimension stays the same. Without a time dimension there are none.
    """
    calendar = time_dimension(partitions)
    if calendar is None:
        return []
    if not isinstance(partitions, dg.MultiPartitionsDefinition):
        return _earlier(calendar, key, season)
    parts = dict(partitions.get_partition_key_from_str(key).keys_by_dimension)
    name = next(d.name for d in partitions.partitions_defs if d.partitions_def == calendar)
    return [str(dg.MultiPartitionKey({**parts, name: k})) for k in _earlier(calendar, parts[name], season)]


def _earlier(calendar: dg.TimeWindowPartitionsDefinition, key: str, season: Season) -> list[str]:
    windows = _windows_before(calendar, key) if season == "last" else _weeks_before(calendar, key)
    return list(islice(windows, _LOOK_BACK[season]))


def _windows_before(calendar: dg.TimeWindowPartitionsDefinition, key: str) -> Iterator[str]:
    window = calendar.get_prev_partition_window(calendar.time_window_for_partition_key(key).start)
    while window is not None:
        yield calendar.get_partition_key(window.start)
        window = calendar.get_prev_partition_window(window.start)


def _weeks_before(calendar: dg.TimeWindowPartitionsDefinition, key: str) -> Iterator[str]:
    start = calendar.time_window_for_partition_key(key).start
    for weeks in range(1, _LOOK_BACK["same_weekday"] + 1):
        # Arithmetic on local time: the same hour of the clock, also across a change to summer time.
        then = start - timedelta(weeks=weeks)
        if then < calendar.start:
            return
        earlier = calendar.get_partition_key(then)
        if calendar.has_partition_key(earlier):
            yield earlier
