"""The windows of a stream: which one a row belongs to, and from when on nothing more is expected of it.

    WINDOWS = Windows(by="hour", every=dg.HourlyPartitionsDefinition("2026-01-01-00:00"), event_time="at")

An asset names them by its metadata `windows` (`package.module:NAME`). Everything here is pure, with the clock as a value.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import dagster as dg

from de_resources.delta.slices import Slice, make_slice
from de_resources.errors import PermanentError

WINDOWS = "windows"
"""Metadata of an asset: the import path of its windows."""


class NoWindows(PermanentError):
    """An asset's `windows` that are none."""

    def __init__(self, asset: str, path: object, why: str) -> None:
        self.asset, self.path, self.why = asset, path, why
        super().__init__(
            f"`{asset}` names the windows {path!r}: {why}. Nothing was written. Name a `Windows` as `package.module:NAME`."
        )


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, kw_only=True)
class Windows:
    """The windows `every` of the column `by`, by which the table is stored.

    A window is over when an event has come that is later than its end by `grace`. Events of the future count as of now: one
    wrong clock closes nothing that the clock on the wall would not close. Where nothing comes any more, the last windows stay
    open.
    """

    by: str
    every: dg.TimeWindowPartitionsDefinition
    event_time: str
    grace: timedelta = timedelta()
    clock: Callable[[], datetime] = _now

    def key_of(self, value: Any) -> str | None:
        """The window of a value of `by`; None for one that lies in no window."""
        try:
            if isinstance(value, datetime):
                instant = value if value.tzinfo else value.replace(tzinfo=UTC)
                key = self.every.get_partition_key_for_timestamp(instant.timestamp())
            elif isinstance(value, date):
                midnight = datetime(value.year, value.month, value.day, tzinfo=ZoneInfo(self.every.timezone))
                key = self.every.get_partition_key_for_timestamp(midnight.timestamp())
            else:
                key = str(value)
            begins = self.every.time_window_for_partition_key(key).start
        except (ValueError, dg.DagsterError):
            return None
        ended = self.every.end is not None and begins >= self.every.end
        return None if begins < self.every.start or ended else key

    def slice_of(self, keys: Collection[str]) -> Slice:
        """The rows of these windows."""
        return make_slice(sorted(keys), self.every, self.by)

    def over(self, keys: Collection[str], newest: datetime | None) -> set[str]:
        """Those of these windows of which nothing more is expected, by the newest event that was staged."""
        if newest is None:
            return set()
        watermark = min(newest if newest.tzinfo else newest.replace(tzinfo=UTC), self.clock()) - self.grace
        return {key for key in keys if self.every.time_window_for_partition_key(key).end <= watermark}


def windows_of(asset: str, metadata: Mapping[str, Any]) -> Windows:
    """The windows that an asset names. Raises `NoWindows`."""
    path = metadata.get(WINDOWS)
    module, _, name = str(path).partition(":")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise NoWindows(asset, path, str(error)) from error
    if not isinstance(found, Windows):
        raise NoWindows(asset, path, "it is something else")
    return found
