"""Inputs whose table need not exist yet: `AssetIn(metadata={"if_missing": "empty"})`."""

from __future__ import annotations

from de_resources.delta.table import Table
from de_resources.errors import PermanentError

IF_MISSING = "if_missing"
_EMPTY = "empty"


class UnusableIfMissing(PermanentError):
    """An input whose `if_missing` promises what cannot be kept."""

    def __init__(self, table: str, value: object, why: str) -> None:
        self.table, self.value, self.why = table, value, why
        super().__init__(f"An input of `{table}` has `{IF_MISSING}` {value!r}, which cannot be kept: {why}.")


def may_be_missing(table: Table, value: object) -> bool:
    """Whether an input's `if_missing` lets its table be missing; None: the input does not say.

    Raises `UnusableIfMissing`, also while the table is there: an input that says so is read without it one day.
    """
    if value is None:
        return False
    if value != _EMPTY:
        raise UnusableIfMissing(table.name, value, f'the only value is "{_EMPTY}"; use it, or leave `{IF_MISSING}` out')
    if table.contract is None:
        raise UnusableIfMissing(
            table.name,
            value,
            "without a contract nobody knows the columns; give the asset a `contract`, or leave it out",
        )
    return True
