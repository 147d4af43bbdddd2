"""Reading a Delta table by another engine than the one that wrote it: in milliseconds, and no party to what is tested."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from deltalake import DeltaTable


def rows_of(table: Path | str) -> list[tuple[Any, ...]]:
    """The live rows in the order of their text, with the values that Spark would give to Python."""
    rows = DeltaTable(str(table)).to_pyarrow_table().to_pylist()
    return sorted((_as_spark_says(row) for row in rows), key=repr)


def multiset(rows: Iterable[Mapping[str, Any]]) -> Counter[str]:
    """Rows that can be compared with those of another table, or of another time, in whatever order they are."""
    return Counter(repr(sorted(row.items())) for row in rows)


def _as_spark_says(value: Any) -> Any:
    if isinstance(value, Mapping):
        return tuple(map(_as_spark_says, value.values()))
    if isinstance(value, list):
        return list(map(_as_spark_says, value))
    if isinstance(value, datetime) and value.tzinfo:
        return value.astimezone().replace(tzinfo=None)
    return value
