"""Traffic per day, from the gold tables: small pure functions on Arrow data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import date

import pyarrow as pa
import pyarrow.compute as pc

from de_assets.dashboards.gold import CUBE_COLUMNS

GRAND_TOTAL = 7
"""`grouping` of the cube's row in which every dimension is summed up."""


@dataclass(frozen=True)
class Day:
    """One day of the blog. `users` counts distinct visitors and does not add up over days."""

    day: date
    visits: int
    users: int
    bot_visits: int
    sessions: int
    lacks: Mapping[str, str] = field(default_factory=dict)
    """Hours without which its figures were computed, and why."""


def traffic_by_day(cube: pa.Table, sessions: Mapping[date, int], limit: int) -> list[Day]:
    """The newest `limit` days of the cube, oldest first. A day without a session has 0."""
    # First the columns, then the rows: delta-rs returns text in a layout that Arrow cannot filter yet.
    numbers = cube.select(list(CUBE_COLUMNS))
    totals = numbers.filter(pc.equal(numbers["grouping"], GRAND_TOTAL))
    rows = sorted(totals.to_pylist(), key=lambda row: row["event_date"])[-limit:]
    return [
        Day(
            day=row["event_date"],
            visits=row["visits"],
            users=row["users"],
            bot_visits=row["bot_visits"],
            sessions=sessions.get(row["event_date"], 0),
        )
        for row in rows
    ]


def with_lacks(days: Iterable[Day], lacks: Iterable[Mapping[str, Mapping[str, str]]]) -> list[Day]:
    """The days with what any of their sources has told that it lacks, by the key of the day's partition."""
    sources = list(lacks)
    return [replace(d, lacks={k: v for each in sources for k, v in each.get(f"{d.day}", {}).items()}) for d in days]


def sessions_by_day(batches: Iterable[pa.RecordBatch]) -> Counter[date]:
    """Number of sessions per day, one batch in memory at a time."""
    counts: Counter[date] = Counter()
    for batch in batches:
        for entry in pc.value_counts(batch.column("event_date")).to_pylist():
            counts[entry["values"]] += entry["counts"]
    return counts
