"""What the engine leaves to a source: the predicates that a database or a file reader evaluates itself.

A bound that is not pushed down turns the load of one hour into a read of the whole table, with the same rows and at a
price that grows every day. Pattern: Incremental Loader.
"""

from __future__ import annotations

import re

from pyspark.sql import DataFrame

from de_resources.compat.plans import formatted_plan
from de_resources.errors import PermanentError

_PUSHED = re.compile(r"^PushedFilters: \[(.*)\]$", re.MULTILINE)
_PREDICATE = re.compile(r"\*?\w+\((?:[^()]|\([^()]*\))*\)")


class UnboundedRead(PermanentError):
    """A read whose bounds the source does not evaluate: it would send the whole table."""

    def __init__(self, source: str, column: str) -> None:
        self.source, self.column = source, column
        super().__init__(
            f"The source `{source}` would send all its rows: no bound on `{column}` is pushed down to it. Nothing was "
            "read. Compare the column itself with literals of its own type, without a function or cast around it."
        )


def pushed_predicates(frame: DataFrame) -> list[str]:
    """The predicates that the frame's sources evaluate, as Spark names them: `GreaterThanOrEqual(column,value)`.

    Only those that a source promises to evaluate completely, which Spark marks by a star for databases; file readers
    promise nothing and only skip blocks. Plans the frame, reads no rows.
    """
    found = (p for line in _PUSHED.findall(formatted_plan(frame)) for p in _PREDICATE.findall(line))
    return [p.removeprefix("*") for p in found if p.startswith("*")]


def bounds(frame: DataFrame, source: str, column: str) -> list[str]:
    """The pushed predicates on `column`. Raises `UnboundedRead` unless it is bounded on both sides."""
    pushed = [p for p in pushed_predicates(frame) if f"({column}," in p]
    kinds = {p.partition("(")[0] for p in pushed}
    if not (kinds & {"GreaterThanOrEqual", "GreaterThan"} and kinds & {"LessThan", "LessThanOrEqual"}):
        raise UnboundedRead(source, column)
    return pushed
