"""What an observer from outside remembers of a table: the last version that it saw, and the points it has learnt from.

One JSON file per table, replaced in one step. Losing it costs a new look at the table, and its history.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from de_resources.observers.measures import QUANTILES, TOP, Figure, Figures
from de_resources.observers.profile import Point

MOST_POINTS = 400
"""The newest ones are remembered: a year of days, more than two weeks of hours."""

NEVER = -1


@dataclass(frozen=True)
class Memory:
    """Of one table. `table_id` tells it from another one that was made anew at its place."""

    table_id: str = ""
    version: int = NEVER
    points: Mapping[str, Point] = field(default_factory=dict)
    accepted: Mapping[str, str] = field(default_factory=dict)
    """Reasons by the key of a point: why a person takes it for usual, whatever the bounds say."""

    def seen(self, table_id: str, version: int) -> bool:
        """Whether this version, or a later one, was looked at."""
        return self.table_id == table_id and self.version >= version

    def with_points(self, table_id: str, version: int, points: Iterable[Point]) -> Memory:
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
    """What is remembered. A file that is missing, or that nobody can read any more, is a memory of nothing."""
    try:
        told = json.loads(file.read_text(encoding="utf-8"))
        points = {key: _point(key, each) for key, each in told["points"].items()}
        return Memory(told["table_id"], told["version"], points, told["accepted"])
    except (OSError, ValueError, KeyError, TypeError):
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


def publish(file: Path, text: str) -> None:
    """Write beside the place and move there, so that a reader has the old text or the new one."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".draft-", dir=file.parent) as drafts:
        draft = Path(drafts) / file.name
        draft.write_text(text, encoding="utf-8")
        draft.replace(file)


def _told(point: Point, *, whole: bool) -> dict[str, Any]:
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


def _point(key: str, told: Mapping[str, Any]) -> Point:
    columns = {c: {n: _figure(n, f) for n, f in own.items()} for c, own in told["columns"].items()}
    at = datetime.fromisoformat(told["at"])
    return Point(key, told["version"], at, Figures(told["rows"], columns), told["refused"], tuple(told["partition"]))


def _figure(name: str, value: Any) -> Figure:
    if name == TOP:
        return [(str(item), int(count)) for item, count in value]
    if name == QUANTILES:
        return [float(each) for each in value]
    figure: Figure = value
    return figure
