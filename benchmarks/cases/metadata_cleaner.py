"""A week of rows is cleaned in PostgreSQL: its table replaced behind the view, beside DELETE in one table.

Ours is the platform's whole way through `write_week` with no rows: a connection, a new table with its key, the swap of the
view, the drop of the old table. It is timed twice: until a reader who asks the view again and again sees the week empty, and
until the call is over, which is when the server has given the old table's files back to the disk. The peer is one DELETE over
a connection that is open already, in a table of the same rows, key and columns, without what vacuum has to do afterwards. Rows
are made by the server before each call, which is not timed. For each number of rows ours stands beside DELETE, and at the end
what readers wait for with the most rows beside the fewest: 1 is a cost that does not know the rows at all; what the other two
do is in the note. Equal: nothing is left.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from datetime import date
from functools import partial
from itertools import chain, cycle

from psycopg2.extensions import connection

from benchmarks.case import require_equal
from benchmarks.figure import Figure, Kind
from benchmarks.measure import Samples, alternate, middle
from benchmarks.workbench import Size, Workbench
from de_resources.iso_week import Week
from de_resources.postgres import PostgresDatabase
from de_resources.postgres.transaction import Relation
from de_resources.postgres.weekly import WeeklyView, write_week

WEEK = Week.of(date(2026, 1, 7))
COLUMNS = (("day", "date NOT NULL"), ("id", "bigint NOT NULL"), ("page", "text NOT NULL"))
VIEW = WeeklyView(Relation("bench.visits", COLUMNS, ("id",), "day"))
TABLE, PEER = f"bench.{VIEW.table_of(WEEK)}", "bench.visits_in_one_table"
FULL = (100_000, 1_000_000, 3_000_000, 10_000_000)
BAR, CONSTANT = 0.1, 2.0
SEEN, OVER, DELETED = "replace the table, until seen", "replace the table, until over", "`DELETE`"


def run(bench: Workbench) -> list[Figure]:
    """The price of a clean, by rows."""
    bench.start("postgres")
    sizes = FULL if bench.size is Size.FULL else (1_000, 20_000)
    _clean()
    with closing(PostgresDatabase().open()) as session, ThreadPoolExecutor(1) as runs:
        session.autocommit = True
        _execute(session, f"CREATE TABLE {PEER} (LIKE {TABLE} INCLUDING ALL) WITH (autovacuum_enabled = false)")
        samples = {rows: _measured(bench, session, runs, rows) for rows in sizes}
    return [*chain(*(_beside_delete(rows, samples[rows]) for rows in sizes)), _by_rows(samples)]


def _measured(bench: Workbench, session: connection, runs: ThreadPoolExecutor, rows: int) -> dict[str, Samples]:
    turns = cycle((TABLE, TABLE, PEER))  # whose call is next
    cleans: list[Future[None]] = []

    def until_seen() -> None:
        cleans.append(runs.submit(_clean))
        while not cleans[-1].done() and _rows(session, "(SELECT FROM bench.visits LIMIT 1) AS any_row"):
            time.sleep(
                0.001
            )  # how finely it is timed; without a pause the reader would take the run's share of the process

    def fill() -> None:
        while cleans:
            cleans.pop().result()
        _fill(session, next(turns), rows)

    def verify() -> None:
        require_equal(f"a clean of {rows:,} rows", 0, _rows(session, "bench.visits"), _rows(session, PEER))

    return alternate(
        {SEEN: until_seen, OVER: _clean, DELETED: partial(_execute, session, f"DELETE FROM {PEER} WHERE {_in_week()}")},
        verify=verify,
        before=fill,
        rounds=9,
        watched=bench.servers,
    )


def _beside_delete(rows: int, samples: dict[str, Samples]) -> Iterator[Figure]:
    judged = rows == FULL[-1]
    for ours in (SEEN, OVER):
        yield Figure(
            "metadata_cleaner", f"clean of {rows:,} rows", Kind.RATIO, ours, samples[ours],
            DELETED, samples[DELETED], BAR if judged else None, units=rows,
        )  # fmt: skip


def _by_rows(samples: dict[int, dict[str, Samples]]) -> Figure:
    few, many = min(samples), max(samples)
    over, deleted = (middle(samples[many][who]) / middle(samples[few][who]) for who in (OVER, DELETED))
    return Figure(
        "metadata_cleaner", f"{many // few} times the rows", Kind.RATIO, f"{many:,} rows", samples[many][SEEN],
        f"{few:,} rows", samples[few][SEEN], CONSTANT if many == FULL[-1] else None,
        note=f"{OVER}: {over:.1f}x; {DELETED}: {deleted:.0f}x",
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
