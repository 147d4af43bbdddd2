"""What a materialisation tells of a day's file, and in whose name a run writes it."""

from __future__ import annotations

from typing import Any

import dagster as dg

from de_resources.csv_files.days import DayFile


def origin_of(run: dg.DagsterRun) -> str:
    """The run, or the first of a chain of automatic retries, which write once. A person's re-execution is a new write."""
    return (run.root_run_id if "dagster/retry_number" in run.tags else None) or run.run_id


def metadata_of(place: str, file: DayFile) -> dict[str, Any]:
    """Metadata of the day's materialisation; `file.sha256` is its data version."""
    return {
        "dagster/uri": place,
        "dagster/partition_row_count": file.rows,
        "csv/bytes": file.bytes,
        "csv/sha256": file.sha256,
        **({"skipped": "an earlier attempt of this run has written the file"} if file.repeated else {}),
    }
