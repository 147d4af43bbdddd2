"""Names and relations of a dataset that is kept by week, and the locks by which its writers respect each other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date

from psycopg2.extensions import cursor
from psycopg2.sql import SQL, Composable, Composed, Identifier, Literal

from de_resources.errors import PermanentError
from de_resources.iso_week import Week
from de_resources.postgres import PostgresDatabase
from de_resources.postgres.creation import claim_schema, exists, lock
from de_resources.postgres.transaction import Relation

IN_ITS_WEEK = "in_its_week"
"""The constraint of each table: it keeps foreign rows out, and lets the planner skip tables that cannot match."""
_NAME_LENGTH = 40  # 63 less what is put behind it
_WEEKS = """
    CREATE TABLE IF NOT EXISTS {} (week date PRIMARY KEY, part text NOT NULL, rows bigint NOT NULL, run_id text NOT NULL,
    loaded_at timestamptz NOT NULL DEFAULT now())
"""


class NotByWeek(PermanentError):
    """A relation that cannot be kept by week as it is declared."""

    def __init__(self, relation: str, why: str) -> None:
        self.relation, self.why = relation, why
        super().__init__(f"`{relation}` cannot be kept by week: {why}. Correct its declaration.")


@dataclass(frozen=True)
class WeeklyView:
    """A declared relation, sliced by a column with the day, as a view over tables by week. Raises `NotByWeek`."""

    relation: Relation

    def __post_init__(self) -> None:
        base = self.name.partition(".")[2]
        if not 0 < len(base.encode()) <= _NAME_LENGTH:
            raise NotByWeek(self.name, f"its name is not `schema.name` with a name of up to {_NAME_LENGTH} bytes")
        type_ = dict(self.relation.columns).get(self.relation.slice_column, "absent")
        if type_ != "date NOT NULL":
            raise NotByWeek(self.name, f"its slice column `{self.relation.slice_column}` is {type_}, not date NOT NULL")

    @property
    def name(self) -> str:
        """`schema.name`, as readers call it."""
        return self.relation.name

    @property
    def declared(self) -> tuple[str, ...]:
        """The columns that a load brings."""
        return tuple(name for name, _ in self.relation.columns)

    def table_of(self, week: Week) -> str:
        """The table of a week, which is a part of the view."""
        return self._beside(week.label)

    @property
    def frozen(self) -> str:
        """The table of the weeks that were put together."""
        return self._beside("frozen")

    @property
    def template(self) -> Identifier:
        """The empty table that has the columns."""
        return self.part(self._beside("template"))

    @property
    def weeks(self) -> Identifier:
        """Where each week lies."""
        return self.part(self._beside("weeks"))

    def part(self, table: str) -> Identifier:
        """A table of its schema, quoted."""
        return Identifier(self.name.partition(".")[0], table)

    def _beside(self, what: str) -> str:
        return f"{self.name.partition('.')[2]}_{what}"

    def between(self, start: date, end: date) -> Composed:
        """The condition for rows from `start` until before `end`."""
        day = Identifier(self.relation.slice_column)
        return SQL("({0} >= {1}::date AND {0} < {2}::date)").format(day, Literal(start), Literal(end))


def ensure(database: PostgresDatabase, view: WeeklyView) -> None:
    """Create what is absent, in a transaction of its own: a first load must not hold all others up."""
    with database.connect() as session, session.cursor() as statement:
        _create_missing(statement, view)
        view.relation.protect(statement)


def _create_missing(statement: cursor, view: WeeklyView) -> None:
    if not exists(statement, view.relation.identifier):
        claim_schema(statement, view.name.partition(".")[0])
    if not exists(statement, view.relation.identifier):
        columns = [SQL("{} " + type_).format(Identifier(name)) for name, type_ in view.relation.columns]
        statement.execute(SQL("CREATE TABLE IF NOT EXISTS {} ({})").format(view.template, listed(columns)))
        statement.execute(SQL(_WEEKS).format(view.weeks))
        statement.execute(view_over(statement, view, parts(statement, view)))


def lock_whole(statement: cursor, view: WeeklyView, *, shared: bool = False) -> None:
    """For who moves weeks or changes columns; loads share it among themselves."""
    lock(statement, f"{view.name}: whole", shared=shared)


def columns_of(statement: cursor, relation: Identifier) -> dict[str, str]:
    """The columns of a table and their types, in their order."""
    statement.execute(
        "SELECT attname, format_type(atttypid, NULL) FROM pg_attribute "
        "WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
        (relation.as_string(statement),),
    )
    return dict(statement.fetchall())


def parts(statement: cursor, view: WeeklyView) -> list[str]:
    """The tables that hold rows, in the order of their first week."""
    statement.execute(SQL("SELECT part FROM {} GROUP BY part ORDER BY min(week)").format(view.weeks))
    return [part for (part,) in statement.fetchall()]


def view_over(statement: cursor, view: WeeklyView, tables: Sequence[str]) -> Composed:
    """The statement that makes the view consist of these tables.

    The empty template comes first, so that there are columns before there is a week. Each table's columns are named:
    a table that was widened later, or by hand, may have them in another order, and `UNION` goes by position.
    """
    columns = listed(map(Identifier, columns_of(statement, view.template)))
    chosen = [
        SQL("SELECT {} FROM {}").format(columns, table) for table in (view.template, *(view.part(t) for t in tables))
    ]
    return SQL("CREATE OR REPLACE VIEW {} AS {}").format(view.relation.identifier, SQL(" UNION ALL ").join(chosen))


def listed(items: Iterable[Composable]) -> Composed:
    """Separated by commas."""
    return SQL(", ").join(items)
