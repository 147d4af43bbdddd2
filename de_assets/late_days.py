"""Which days a run over some days has to compute, when each also rewrites the days that late data may still change.

Source: pattern *Static Late Data Integrator*. Done naively, the windows of a backfill's days overlap, and a day is computed
once for each of them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING

from de_assets.ranges import contiguous
from de_resources.errors import PermanentError

if TYPE_CHECKING:
    import dagster as dg

    from de_resources.contract import Contract

LOOK_BACK = "look_back_days"
"""Metadata of an asset: how many days before its own a run rewrites."""


class Late(StrEnum):
    """When the look-back days are computed: in the same run as the asked days, or in runs before or after it."""

    BESIDE = "beside"
    BEFORE = "before"
    AFTER = "after"


Range = tuple[date, date]
"""First and last day, both included."""


class NoWholeDays(PermanentError):
    """A contract of which a look-back cannot take its days."""

    def __init__(self, contract: str) -> None:
        self.contract = contract
        super().__init__(
            f"`{contract}` is rewritten for whole days, and its contract does not say for how many: say `late_for` in days."
        )


@dataclass(frozen=True)
class BackfillPlan:
    """What a request for `asked` days computes: each day of `asked` and `look_back` once, and no other."""

    asked: tuple[date, ...]
    look_back: tuple[date, ...]

    def ranges(self, late: Late = Late.BESIDE) -> list[Range]:
        """Runs of consecutive days, in the order in which they are to be launched."""
        asked, before = _ranges(self.asked), _ranges(self.look_back)
        if late is Late.BESIDE:
            return _ranges([*self.asked, *self.look_back])
        return [*before, *asked] if late is Late.BEFORE else [*asked, *before]


def plan(asked: Collection[date], look_back_days: int, known: Collection[date]) -> BackfillPlan:
    """The days to compute for a request. `known` are the days that exist: others are left out.

    Three days in a row with a look-back of four are what the last one covers, and what it does not cover of the others.
    """
    existing = set(known)
    wanted = {day for day in asked if day in existing}
    window = {day - timedelta(days=back) for day in wanted for back in range(1, look_back_days + 1)}
    return BackfillPlan(tuple(sorted(wanted)), tuple(sorted((window & existing) - wanted)))


def window_days(contract: Contract) -> int:
    """For how many whole days after its own a dataset takes in what comes late, as its contract says. Raises `NoWholeDays`."""
    days, rest = divmod(contract.late_for or timedelta(0), timedelta(days=1))
    if rest or not days:
        raise NoWholeDays(contract.name)
    return days


def days_of(partitions: dg.TimeWindowPartitionsDefinition) -> list[date]:
    """The days that a daily partitioning has by now."""
    return [date.fromisoformat(key) for key in partitions.get_partition_keys()]


def days_between(first: date, last: date) -> list[date]:
    """The days from the first to the last, both included; none where the last comes before the first."""
    return [first + timedelta(days=n) for n in range((last - first).days + 1)]


def _ranges(days: Sequence[date]) -> list[Range]:
    return [(group[0], group[-1]) for group in contiguous(days, timedelta(days=1))]
