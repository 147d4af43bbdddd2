"""The account itself: what is left over of each partition of a step, why, and what a day adds up to. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from enum import StrEnum

MOST_TOLD = 5


class Why(StrEnum):
    """Why rows of a partition are not where they belong. Only the last one is nobody's intention."""

    WAITING = "waiting"
    TOO_OLD = "too old"
    UNEXPLAINED = "unexplained"


@dataclass(frozen=True)
class LeftOver:
    """A partition of a step that does not come out even: `rows` are missing behind it, or where negative, too many."""

    of: str
    into: str
    partition: str
    start: datetime
    rows: int
    why: Why

    @property
    def day(self) -> date:
        """The day that it is a part of (UTC)."""
        return self.start.astimezone(UTC).date()

    def __str__(self) -> str:
        what = f"{self.rows:,} of `{self.of}` missing" if self.rows > 0 else f"{-self.rows:,} more than `{self.of}` has"
        return f"`{self.into}` {self.partition}: {what}"


@dataclass(frozen=True)
class Account:
    """All days: `landed`, `counted` and `apart` (by kind, what was set apart or removed on the way) by day, and the left over.

    For every day `landed` is the sum of `counted`, of everything `apart`, and of what is left over.
    """

    landed: Mapping[date, int]
    counted: Mapping[date, int]
    apart: Mapping[str, Mapping[date, int]]
    left_over: Sequence[LeftOver] = ()
    days_left_out: int = 0
    missing: Sequence[str] = field(default=())
    """Tables that are not there."""

    @property
    def unexplained(self) -> list[LeftOver]:
        """What nobody intended, the oldest first."""
        return sorted((each for each in self.left_over if each.why == Why.UNEXPLAINED), key=lambda each: each.start)

    def days(self) -> list[date]:
        """Every day of which there is anything, in order."""
        parts = (self.landed, self.counted, *self.apart.values(), [each.day for each in self.left_over])
        return sorted({day for part in parts for day in part})

    def of_day(self, day: date) -> dict[str, int]:
        """The figures of one day, in the order in which people read them."""
        over: Counter[Why] = Counter()
        for each in self.left_over:
            over[each.why] += each.rows if each.day == day else 0
        figures = Counter({kind: rows.get(day, 0) for kind, rows in self.apart.items()})
        # A row may be too old for the run that left it out, and a run too old to be made again for a row.
        figures.update({str(why): over[why] for why in Why})
        return {"landed": self.landed.get(day, 0), "counted": self.counted.get(day, 0), **figures}

    def totals(self) -> dict[str, int]:
        """The figures of all days together."""
        total: Counter[str] = Counter(dict.fromkeys(("landed", "counted", *self.apart, *map(str, Why)), 0))
        for day in self.days():
            total.update(self.of_day(day))
        return dict(total)

    def table(self) -> str:
        """A row per day, the newest first."""
        days = sorted(self.days(), reverse=True)
        head = ["day", *self.totals()]
        rows = [[f"{day}", *(f"{count:,}" for count in self.of_day(day).values())] for day in days]
        return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *rows])

    def verdict(self) -> tuple[bool, str]:
        """Whether everything that landed is accounted for, and a sentence."""
        if not self.days():
            return True, "Nothing has landed yet."
        wrong, told = self.unexplained, ", ".join(f"{n:,} {name}" for name, n in self.totals().items() if n)
        if not wrong:
            return True, f"{len(self.days())} days are accounted for: {told}."
        more = f" and {len(wrong) - MOST_TOLD} more" if len(wrong) > MOST_TOLD else ""
        gone = f" There is no table of {', '.join(f'`{name}`' for name in self.missing)}." if self.missing else ""
        named = "; ".join(map(str, wrong[:MOST_TOLD]))
        return False, f"Lost or counted twice: {named}{more}.{gone} Materialise these partitions again."
