"""Offline Observer: a look at each new version of a table, once, from outside of what writes it.

It takes no lock and waits for nobody: a version is read as it was committed, and the table is never written. What it learns is
a page for people, and figures for plots.

Source: pattern *Offline Observer*.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from pyspark.sql import SparkSession

from de_resources.delta.log import TableLog
from de_resources.delta.log.changed_partitions import changed_partitions
from de_resources.delta.log.versions import HOUSEKEEPING
from de_resources.delta.table import Table
from de_resources.observers.drift import Judgement, judge
from de_resources.observers.memory import Memory, load, save
from de_resources.observers.page import ProfiledDataset, page_of
from de_resources.observers.profile import HistoryPoint, profile
from de_resources.pages.files import publish

Refused = Callable[[HistoryPoint], str]
"""Why a point is no measure of others; empty: it is."""


@dataclass(frozen=True)
class Look:
    """What a look at a table has brought. `new` are the points that it made; none: there was nothing new."""

    dataset: ProfiledDataset
    memory: Memory
    judgement: Judgement
    page: Path
    new: tuple[HistoryPoint, ...] = ()

    @property
    def newest(self) -> HistoryPoint:
        """The last of all points."""
        return self.memory.points[max(self.memory.points)]


@dataclass(frozen=True)
class OfflineObserver:
    """Looks at tables and keeps what it has learnt in a folder: per dataset one file of memory, and one page."""

    folder: Path

    def look(
        self,
        session: Callable[[], SparkSession],
        name: str,
        table: Table,
        at: datetime,
        refused: Refused = lambda _: "",
        accept: str = "",
    ) -> Look | None:
        """Profile what is new in a table, and publish its page; None where nothing is, or there is no table.

        `accept` is a person's reason to take all points that are outside of their bounds for usual. The engine is asked for
        only where there is something to read. A rerun after a death looks again at what was not remembered.
        """
        log = table.log()
        if log is None:
            return None
        file, page = self._places(name)
        memory = load(file)
        table_id = str(log.table.metadata().id)
        points: list[HistoryPoint] = []
        if not memory.seen(table_id, log.version):
            since = memory.version if memory.table_id == table_id else -1
            points = _new_points(session, table, log, since, at)
            points = [replace(point, refused=refused(point)) for point in points]
            memory = memory.with_points(table_id, log.version, points)
        elif not accept:
            return None
        if accept:
            memory = memory.accepting({drift.key for drift in judge(memory).drifts}, accept)
        look = Look(_dataset(name, table, log), memory, judge(memory), page, tuple(points))
        publish(page, page_of(look.dataset, memory, look.judgement))
        # Last: what was not shown was not seen.
        save(file, memory)
        return look if points or accept else None

    def _places(self, name: str) -> tuple[Path, Path]:
        place = self.folder.joinpath(*name.split("/"))
        return place.with_name(f"{place.name}.json"), place.with_name(f"{place.name}.html")


def _new_points(
    session: Callable[[], SparkSession], table: Table, log: TableLog, since: int, at: datetime
) -> list[HistoryPoint]:
    """The points of what changed after a version; none where only housekeeping came."""
    if log.partition_columns():
        changed = list(changed_partitions(log, since).changed)
        return profile(session(), table, log, changed, at) if changed else []
    if since >= 0 and all(
        commit.operation in HOUSEKEEPING for commit in log.commits(log.version - since) if commit.version > since
    ):
        return []
    return profile(session(), table, log, None, at) if not log.is_blank else []


def _dataset(name: str, table: Table, log: TableLog) -> ProfiledDataset:
    by = log.partition_columns()
    fields = {field.name: str(field.type) for field in log.table.schema().fields if field.name not in by}
    types = {c.name: c.type.simpleString() for c in table.contract.columns} if table.contract else {}
    return ProfiledDataset(
        name, {column: types.get(column, _plain(type_)) for column, type_ in fields.items()}, table.contract
    )


def _plain(type_: str) -> str:
    """`PrimitiveType("long")` as `long`; a nested type as its kind."""
    kind, _, rest = type_.partition("(")
    return rest.strip('")') if kind == "PrimitiveType" else kind.removesuffix("Type").lower()
