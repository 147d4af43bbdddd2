"""What an observer from outside remembers of a table: the last version that it saw, and the points it has learnt from.

One JSON file per table, replaced in one step. Losing it costs a new look at the table, and its history.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from de_resources.observers.measures import QUANTILES, TOP, Figure, Figures
from de_resources.observers.profile import HistoryPoint
from de_resources.pages.files import publish

MOST_POINTS = 400
"""The newest ones are remembered: a year of days, more than two weeks of hours."""

NEVER = -1


@dataclass(frozen=True)
class Memory:
    """Of one table. `table_id` tells it from another one that was made again at its place."""

    table_id: str = ""
    version: int = NEVER
    points: Mapping[str, HistoryPoint] = field(default_factory=dict)
    accepted: Mapping[str, str] = field(default_factory=dict)
    """Reasons by the key of a point: why a person takes it for usual, whatever the bounds say."""

    def seen(self, table_id: str, version: int) -> bool:
        """Whether this version, or a later one, was looked at."""
        return self.table_id == table_id and self.version >= version

    def with_points(self, table_id: str, version: int, points: Iterable[HistoryPoint]) -> Memory:
        """After a look. A point takes the place of the one that its partition had; of another table nothing is kept."""
        before = self if self.table_id == table_id else Memory()
        new = {point.key: point for point in points}
        merged = {**before.points, **new}
        kept = {key: merged[key] for key in sorted(merged)[-MOST_POINTS:]}
        # A partition that was written again is another one than the one that a person accepted.
        accepted = {key: why for key, why in before.accepted.items() if key in kept and key not in new}
        return Memory(table_id, version, kept, accepted)

    def accepting(self, keys: Iterable[str], reason: str) -> Memory:
        """A person takes these points for usual."""
        return replace(self, accepted={**self.accepted, **{key: reason for key in keys if key in self.points}})


def load(file: Path) -> Memory:
    """What is remembered. A file that is missing, or whose content nobody understands any more, is a memory of nothing.

    Raises `OSError` for a file that is there and cannot be read now: whoever took that for nothing would look at everything
    again, and forget what was learnt.
    """
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return Memory()
    try:
        told = json.loads(text)
        points = {key: _point(key, each) for key, each in told["points"].items()}
        return Memory(told["table_id"], told["version"], points, told["accepted"])
    except (ValueError, KeyError, TypeError, AttributeError):
        return Memory()


def save(file: Path, memory: Memory) -> None:
    """Remember, in one step."""
    newest = max(memory.points, default="")
    told = {
        "table_id": memory.table_id,
        "version": memory.version,
        "accepted": dict(memory.accepted),
        "points": {key: _told(point, whole=key == newest) for key, point in memory.points.items()},
    }
    publish(file, json.dumps(told, separators=(",", ":")))


def _told(point: HistoryPoint, *, whole: bool) -> dict[str, Any]:
    """Only the newest point is shown with its most frequent values."""
    left_out = () if whole else (TOP,)
    columns = {c: {n: f for n, f in own.items() if n not in left_out} for c, own in point.figures.columns.items()}
    return {
        "version": point.version,
        "at": point.at.isoformat(),
        "refused": point.refused,
        "partition": point.partition,
        "rows": point.figures.rows,
        "columns": columns,
    }


def _point(key: str, told: Mapping[str, Any]) -> HistoryPoint:
    columns = {c: {n: _figure(n, f) for n, f in own.items()} for c, own in told["columns"].items()}
    at = datetime.fromisoformat(told["at"])
    return HistoryPoint(
        key, told["version"], at, Figures(told["rows"], columns), told["refused"], tuple(told["partition"])
    )


def _figure(name: str, value: Any) -> Figure:
    if name == TOP:
        return [(str(item), int(count)) for item, count in value]
    if name == QUANTILES:
        return [float(each) for each in value]
    figure: Figure = value
    return figure
