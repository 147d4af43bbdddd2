"""Why the database refused or broke off, in the platform's terms and without a value of a row."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from psycopg2.errors import CheckViolation

from de_resources.errors import PermanentError
from de_resources.postgres import transaction as postgres_writer
from de_resources.postgres.weekly.view import IN_ITS_WEEK, WeeklyView


class RowsOutsideWeek(PermanentError):
    """Rows that a rerun of their week would not replace."""

    def __init__(self, view: str, column: str, what: object) -> None:
        self.view, self.column, self.what = view, column, what
        super().__init__(
            f"A row for `{view}` has a `{column}` that does not lie in {what}: a rerun of the week would not replace it. "
            "Nothing was written. Filter the rows by their week."
        )


@contextmanager
def explained(view: WeeklyView, what: object) -> Iterator[None]:
    """Raise `RowsOutsideWeek`, `LoadRefused` or `LoadInterrupted` for what the database says about a change of `what`."""
    with postgres_writer.explained(view.name, what):
        try:
            yield
        except CheckViolation as error:
            if error.diag.constraint_name == IN_ITS_WEEK:
                raise RowsOutsideWeek(view.name, view.relation.slice_column, what) from None
            raise
