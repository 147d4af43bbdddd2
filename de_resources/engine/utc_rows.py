"""Rows of a frame in this process, with times that say which they are.

`collect()` gives times without a zone, in that of the process: one hour of the year cannot be told from the next, and a
database reads them in a zone of its own.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import TimestampType

_EPOCH = datetime.fromtimestamp(0, UTC)


def utc_rows(frame: DataFrame) -> list[dict[str, Any]]:
    """All rows, fetched; columns of type TIMESTAMP as times in UTC, to the microsecond."""
    times = [field.name for field in frame.schema.fields if isinstance(field.dataType, TimestampType)]
    rows = [row.asDict() for row in frame.withColumns({name: F.unix_micros(name) for name in times}).collect()]
    for row in rows:
        row.update({name: _EPOCH + timedelta(microseconds=row[name]) for name in times if row[name] is not None})
    return rows
