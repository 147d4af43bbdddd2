"""A week of rows is cleaned in PostgreSQL: its table replaced behind the view, beside DELETE in one table.

Ours is the platform's whole way through `write_week` with no rows: a connection, a new table with its key, the swap of the
view, the drop of the old table. The peer is one DELETE over a connection that is open already, in a table of the same
rows, key and columns, without what vacuum has to do afterwards. Rows are made by the server before each call, which is
not timed. For each number of rows the two stand beside each other, and at the end ours for the most rows beside ours for
the fewest: 1 would be a cost that does not know the rows at all; DELETE's own figure is in the note. Equal: nothing is left.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from datetime import date
from functools import partial
from itertools import cycle
from statistics import median

from psycopg2.extensions import connection

from benchmarks.case import require_equal
from benchmarks.figure import Figure, Kind
from benchmarks.measure import Sample, alternate
from benchmarks.workbench import Size, Workbench
from de_resources.iso_week import Week
from de_resources.postgres import PostgresDatabase
from de_resources.postgres_writer import Relation
from de_resources.weekly import WeeklyView, write_week

WEEK = Week.of(date(2026, 1, 7))
COLUMNS = (("day", "date NOT NULL"), ("id", "bigint NOT NULL"), ("page", "text NOT NULL"))
VIEW = WeeklyView(Relation("bench.visits", COLUMNS, ("id",), "day"))
TABLE, PEER = f"bench.{VIEW.table_of(WEEK)}", "bench.visits_in_one_table"
FULL = (100_000, 1_000_000, 3_000_000, 10_000_000)
BAR, CONSTANT = 0.1, 5.0


def run(bench: Workbench) -> list[Figure]:
    """The price of a clean, by rows."""
    bench.start("postgres")
    sizes = FULL if bench.size is Size.FULL else (1_000, 20_000)
    _clean()
    with closing(PostgresDatabase().open()) as session:
        session.autocommit = True
        _execute(session, f"CREATE TABLE {PEER} (LIKE {TABLE} INCLUDING ALL) WITH (autovacuum_enabled = false)")
        samples = {rows: _measured(bench, session, rows) for rows in sizes}
    return [*(_beside_delete(rows, samples[rows], rows == FULL[-1]) for rows in sizes), _by_rows(samples)]


def _measured(bench: Workbench, session: connection, rows: int) -> dict[str, tuple[Sample, ...]]:
    def verify() -> None:
        require_equal(f"a clean of {rows:,} rows", 0, _rows(session, "bench.visits"), _rows(session, PEER))

    turns = cycle((TABLE, PEER))  # whose call is next
    return alternate(
        {"ours": _clean, "delete": partial(_execute, session, f"DELETE FROM {PEER} WHERE {_in_week()}")},
        verify=verify,
        before=lambda: _fill(session, next(turns), rows),
        watched=bench.servers,
    )


def _beside_delete(rows: int, samples: dict[str, tuple[Sample, ...]], judged: bool) -> Figure:
    return Figure(
        "metadata_cleaner", f"clean of {rows:,} rows", Kind.RATIO, "replace the table", samples["ours"],
        "`DELETE`", samples["delete"], BAR if judged else None, units=rows,
    )  # fmt: skip


def _by_rows(samples: dict[int, dict[str, tuple[Sample, ...]]]) -> Figure:
    few, many = min(samples), max(samples)
    deleted = median(s.wall for s in samples[many]["delete"]) / median(s.wall for s in samples[few]["delete"])
    return Figure(
        "metadata_cleaner", f"{many // few} times the rows", Kind.RATIO, f"{many:,} rows", samples[many]["ours"],
        f"{few:,} rows", samples[few]["ours"], CONSTANT if many == FULL[-1] else None, note=f"`DELETE`: {deleted:.0f}x",
    )  # fmt: skip


def _clean() -> None:
    write_week(PostgresDatabase(), VIEW, WEEK, (), run_id="bench")


def _fill(session: connection, table: str, rows: int) -> None:
    """Rows in place of what is left of those before."""
    _execute(session, f"TRUNCATE {table}")
    _execute(
        session,
        f"INSERT INTO {table} (day, id, page) SELECT date '{WEEK.start}' + (n % 7)::int, n, 'page_' || n % 1000 "
        f"FROM generate_series(1, {rows}) AS n",
    )


def _in_week() -> str:
    return f"day >= date '{WEEK.start}' AND day < date '{WEEK.end}'"


def _rows(session: connection, relation: str) -> int:
    return int(str(_execute(session, f"SELECT count(*) FROM {relation}")[0][0]))


def _execute(session: connection, statement: str) -> Sequence[tuple[object, ...]]:
    with session.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchall() if cursor.description else []
