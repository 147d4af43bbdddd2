"""A weekly view in a schema of its own, for tests and for the programs that they kill."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

from de_resources.iso_week import Week
from de_resources.postgres import PostgresDatabase
from de_resources.postgres.transaction import Relation
from de_resources.postgres.weekly import LockWait, Replaced, WeeklyView, write_week

COLUMNS = (("day", "date NOT NULL"), ("id", "bigint NOT NULL"), ("version", "int NOT NULL"))
FIRST, SECOND, THIRD = (Week(date(2024, 10, day)) for day in (7, 14, 21))
BRIEF = LockWait(wait_seconds=0.05, pause_seconds=0.05, total_seconds=0.3)


@dataclass(frozen=True)
class World:
    """Rows of a week are numbered, and carry the version that a load gives all of them."""

    schema: str
    columns: tuple[tuple[str, str], ...] = COLUMNS

    @property
    def view(self) -> WeeklyView:
        return WeeklyView(Relation(f"{self.schema}.clicks", self.columns, ("id",), "day"))

    def write(
        self, week: Week, version: int, count: int = 14, *, run: str = "run", patience: LockWait | None = None
    ) -> Replaced:
        return self.write_rows(week, rows_of(week, version, count), run=run, patience=patience)

    def write_rows(
        self, week: Week, rows: Iterable[tuple[Any, ...]], *, run: str = "run", patience: LockWait | None = None
    ) -> Replaced:
        return write_week(PostgresDatabase(), self.view, week, rows, run_id=run, patience=patience or LockWait())

    def seen(self) -> list[tuple[Any, ...]]:
        """By week: its Monday, its rows, and the least and the greatest version."""
        return self.query(
            "SELECT date_trunc('week', day)::date, count(*), min(version), max(version) FROM {}.clicks GROUP BY 1 ORDER BY 1"
        )

    def relations(self, kind: str = "r") -> list[str]:
        """The tables (or views, `v`) that there are, by name."""
        found = self.query(
            "SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
            f"WHERE n.nspname = '{{}}' AND c.relkind = '{kind}' ORDER BY 1"
        )
        return [name for (name,) in found]

    def query(self, statement: str) -> list[tuple[Any, ...]]:
        with PostgresDatabase().connect() as session, session.cursor() as cursor:
            cursor.execute(statement.format(self.schema))
            return cursor.fetchall() if cursor.description else []


def rows_of(week: Week, version: int, count: int) -> list[tuple[Any, ...]]:
    """Rows over all days of a week; numbers differ from week to week."""
    base = week.start.toordinal() * 1_000_000
    return [(week.start + timedelta(days=n % 7), base + n, version) for n in range(count)]
