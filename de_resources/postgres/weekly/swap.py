"""Other tables behind the view of the weeks."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from psycopg2.extensions import cursor
from psycopg2.sql import SQL, Identifier

from de_resources.postgres.weekly.view import WeeklyView, parts, view_over


def exchange(statement: cursor, view: WeeklyView, staged: Mapping[str, str], register: Callable[[], None]) -> None:
    """Put the `staged` tables in the place of those that they are named for, and drop what no week lies in any more.

    `register` writes down where the weeks lie now. The view goes first: who has it, has nothing of the tables below it.
    """
    before = parts(statement, view)
    register()
    after = parts(statement, view)
    statement.execute(view_over(statement, view, [staged.get(part, part) for part in after]))
    for part in before:
        if part in staged or part not in after:
            statement.execute(SQL("DROP TABLE {}").format(view.part(part)))
    for part, stage in staged.items():
        statement.execute(SQL("ALTER TABLE {} RENAME TO {}").format(view.part(stage), Identifier(part)))
