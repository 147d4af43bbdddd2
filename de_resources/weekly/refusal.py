"""Why the database refused or broke off, in the platform's terms and without a value of a row."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg2
from psycopg2.errors import CheckViolation, DependentObjectsStillExist

from de_resources.errors import PermanentError
from de_resources.postgres_writer import LoadInterrupted, LoadRefused, reason_of
from de_resources.weekly.view import IN_ITS_WEEK, WeeklyView

_REFUSALS = (psycopg2.IntegrityError, psycopg2.DataError, psycopg2.ProgrammingError, DependentObjectsStillExist)


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
    try:
        yield
    except _REFUSALS as error:
        if isinstance(error, CheckViolation) and error.diag.constraint_name == IN_ITS_WEEK:
            raise RowsOutsideWeek(view.name, view.relation.slice_column, what) from None
        # Without the details, which hold values of the row.
        raise LoadRefused(view.name, what, reason_of(error)) from None
    except psycopg2.Error as error:
        raise LoadInterrupted(view.name, what, reason_of(error)) from error
