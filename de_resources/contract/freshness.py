"""How soon data is promised to come: part of a dataset's contract, and written down nowhere else.

    metadata = {"freshness": {"column": "event_time", "every": timedelta(hours=1), "delay": timedelta(minutes=10)}}
    metadata = {"freshness": {"column": "event_time", "silence": timedelta(hours=3)}}

The first is a *continuous* flow: each unit of the clock brings one record at least, which is there `delay` after the unit is
over. The second is an *irregular* one: records come when they like, with a longest silence between them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from de_resources.errors import PermanentError

_EPOCH = datetime.fromtimestamp(0, UTC)
_NOTHING = timedelta(0)


class UnusableFreshness(PermanentError):
    """A promise that nobody can keep or break."""

    def __init__(self, why: str) -> None:
        self.why = why
        super().__init__(
            f"This is no promise of freshness: {why}. Say `every` (each unit of the clock brings a record) or `silence` (the "
            "longest one), as a positive timedelta, with `delay` for what may come later, and `column`, the time of the events."
        )


@dataclass(frozen=True)
class Freshness:
    """The promise: one of `every` and `silence`. Units begin at UTC's midnight of 1970. Raises `UnusableFreshness`."""

    column: str = ""
    """The time of the events; empty where only arrivals are promised."""
    every: timedelta | None = None
    silence: timedelta | None = None
    delay: timedelta = _NOTHING

    def __post_init__(self) -> None:
        """Refuse what is none."""
        if (self.every is None) == (self.silence is None):
            raise UnusableFreshness("it needs one of `every` and `silence`")
        if self.length <= _NOTHING:
            raise UnusableFreshness(f"{self.length} is no length of time")
        if self.delay < _NOTHING:
            raise UnusableFreshness(f"a delay of {self.delay} would be before the event")

    @classmethod
    def of(cls, declared: Mapping[str, Any] | None) -> Freshness | None:
        """The promise that a contract declares; None where it declares none."""
        if declared is None:
            return None
        unknown = declared.keys() - cls.__dataclass_fields__.keys()
        if unknown:
            raise UnusableFreshness(f"nobody knows {', '.join(sorted(unknown))}")
        return cls(**declared)

    @property
    def length(self) -> timedelta:
        """The unit of a continuous flow, or the longest silence of an irregular one."""
        length = self.silence if self.every is None else self.every
        assert length is not None  # noqa: S101 - one of them is there
        return length

    @property
    def oldest(self) -> timedelta:
        """How old the newest record gets where the promise is just kept."""
        return self.expected_by(_EPOCH) - _EPOCH

    def expected_by(self, last: datetime) -> datetime:
        """When, after a record of `last`, the next one is there at the latest.

        A continuous flow owes one in the next unit: between a record at 9:00 and one at 10:59 no hour was without.
        """
        if self.every is None:
            return last + self.length + self.delay
        return last - (last - _EPOCH) % self.every + 2 * self.every + self.delay
