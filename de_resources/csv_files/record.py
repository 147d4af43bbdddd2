"""What a materialisation tells of a day's file."""

from __future__ import annotations

from typing import Any

from de_resources.csv_files.days import DayFile


def metadata_of(place: str, file: DayFile) -> dict[str, Any]:
    """Metadata of the day's materialisation; `file.sha256` is its data version."""
    return {
        "dagster/uri": place,
        "dagster/partition_row_count": file.rows,
        "csv/bytes": file.bytes,
        "csv/sha256": file.sha256,
        **({"skipped": "an earlier attempt of this run has written the file"} if file.repeated else {}),
    }
