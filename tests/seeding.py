"""Tables that are there before a test asks: written without the engine, what it does not ask about costs milliseconds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyspark.sql.types as T
from deltalake import write_deltalake
from pyspark.sql.pandas.types import to_arrow_schema


def seed(
    uri: str,
    rows: Iterable[Mapping[str, Any]],
    columns: T.StructType,
    *,
    partitioned_by: Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
) -> None:
    """Append rows to a Delta table in one commit, or begin it; a column that a row does not name is null. Times are in UTC."""
    found = pa.Table.from_pylist([dict(row) for row in rows], to_arrow_schema(columns, timezone="UTC"))
    by = list(partitioned_by) or None
    settings = dict(properties) if properties else None
    write_deltalake(uri, found, partition_by=by, mode="append", configuration=settings)
