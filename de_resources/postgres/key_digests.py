"""Which rows a stretch of time holds, on both sides of a load: their number, and a sum over their keys.

Pattern: Incremental Loader. Two sets of keys with the same digest are the same set, whatever the order of the rows: an hour
that got a row after it was loaded is found though another row left it. Nothing but numbers travels.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime

import pyarrow.dataset as ds
from psycopg2.sql import SQL, Identifier

from de_resources.delta.table import Table
from de_resources.postgres import PostgresDatabase

# Sixty bits of the key's MD5 are a bigint in both places, and their sum is exact (`numeric`, and Python's int).
_DIGITS = 15
_ASK = """
    SELECT date_trunc('hour', {at} AT TIME ZONE 'UTC'), count(*),
           sum(('x' || substr(md5({key}::text), 1, %s))::bit(60)::bigint)
    FROM {table} WHERE {at} >= %s AND {at} < %s GROUP BY 1
"""


@dataclass(frozen=True)
class KeyDigest:
    """Rows, and the sum of their keys' hashes. None at all is equal to itself."""

    rows: int = 0
    total: int = 0

    def __str__(self) -> str:
        """Short, for a run key."""
        return f"{self.rows}-{self.total:x}"


def has_rows(database: PostgresDatabase, table: str) -> bool:
    """Whether the table is there and holds a row. Raises as `PostgresDatabase.connect`."""
    with database.connect() as session, session.cursor() as cursor:
        cursor.execute("SELECT to_regclass(%s) IS NOT NULL", (table,))
        if cursor.fetchone() != (True,):
            return False
        cursor.execute(SQL("SELECT EXISTS (SELECT FROM {table})").format(table=Identifier(*table.split("."))))
        return cursor.fetchone() == (True,)


def of_relation(
    database: PostgresDatabase, table: str, *, key: str, at: str, start: datetime, end: datetime
) -> dict[datetime, KeyDigest]:
    """By hour (UTC) of the time `at` within `[start, end)`; hours without rows are absent. One query."""
    names = {"at": Identifier(at), "key": Identifier(key), "table": Identifier(*table.split("."))}
    with database.connect() as session, session.cursor() as cursor:
        cursor.execute(SQL(_ASK).format(**names), (_DIGITS, start, end))
        return {hour.replace(tzinfo=UTC): KeyDigest(rows, int(total)) for hour, rows, total in cursor.fetchall()}


def of_table(table: Table, *, key: str, hour: str, start: datetime, end: datetime) -> dict[datetime, KeyDigest]:
    """By the column `hour` within `[start, end)`, from the files of these hours, without an engine."""
    log = table.log()
    if log is None:
        return {}
    within = (ds.field(hour) >= start) & (ds.field(hour) < end)
    found: dict[datetime, list[int]] = defaultdict(list)
    rows = log.table.to_pyarrow_dataset().to_table(columns=[key, hour], filter=within)
    for name, at in zip(rows[key].to_pylist(), rows[hour].to_pylist(), strict=True):
        found[at.astimezone(UTC)].append(_hash(str(name)))
    return {at: KeyDigest(len(hashes), sum(hashes)) for at, hashes in found.items()}


def _hash(key: str) -> int:
    return int(hashlib.md5(key.encode(), usedforsecurity=False).hexdigest()[:_DIGITS], 16)
