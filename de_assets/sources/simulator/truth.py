"""Ground truth: which landed record has which defect, kept beside the landing so that a test need not ask the platform.

<landing>/_truth/visits/date=2026-01-31/hour=07.parquet    one row per defect; the hour's counts as file metadata
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from de_assets.sources.landing import VISITS, full_hour

SCHEMA = pa.schema(
    [
        pa.field("position", pa.int64()),
        pa.field("visit_id", pa.string()),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("detail", pa.string(), nullable=False),
    ]
)
"""`position`: line in the hour's folder, from 0. It and `visit_id` are null where the defect is the whole hour's."""


class Defect(StrEnum):
    """Kinds of defects, and what `detail` says of each."""

    DUPLICATE = "duplicate"
    """The line is a copy: `adjacent` or `later`."""
    LATE = "late"
    """Hours of delay: the event happened that many hours before the folder's hour."""
    MALFORMED = "malformed"
    """`truncated_json`, `invalid_utf8`, `wrong_type` or `not_json`."""
    MISSING = "missing"
    """`<field>:null` or `<field>:absent`."""
    OUT_OF_ORDER = "out_of_order"
    """How many positions too late."""
    FUTURE = "future"
    """Days by which the clock is ahead."""
    SKEWED = "skewed"
    """The user who owns the share."""
    SILENCE = "silence"
    """Empty; one row for the hour."""
    SCHEMA = "schema"
    """The further field; one row for the hour, if any of its visits carries it."""


@dataclass(frozen=True)
class HourTruth:
    """One landed hour. `lines == visits + duplicates`; `defects` has the columns of `SCHEMA`."""

    hour: datetime
    visits: int
    lines: int
    defects: pa.Table

    @property
    def counts(self) -> Counter[str]:
        """Defects per kind."""
        return Counter(self.defects["kind"].to_pylist())

    def ids(self, kind: str) -> list[str]:
        """Visit ids with a defect, in order of position; a copy has its original's."""
        return [str(row["visit_id"]) for row in self.rows(kind) if row["visit_id"] is not None]

    def rows(self, kind: str) -> list[dict[str, object]]:
        """The defects of a kind, in order of position."""
        return [row for row in self.defects.to_pylist() if row["kind"] == kind]

    @property
    def processable(self) -> int:
        """Distinct visits that can be read and have all required fields, on time or not."""
        return self.visits - self.counts[Defect.MALFORMED] - self.counts[Defect.MISSING]


class Truth:
    """The ground truth of a landing."""

    def __init__(self, landing: Path, dataset: str = VISITS) -> None:
        self._folder = landing / "_truth" / dataset

    def file(self, hour: datetime) -> Path:
        """Where an hour's truth is, if it was landed."""
        utc = full_hour(hour)
        return self._folder / f"date={utc.date().isoformat()}" / f"hour={utc.hour:02}.parquet"

    def record(self, truth: HourTruth) -> None:
        """Write one hour, replacing what was known of it."""
        path = self.file(truth.hour)
        path.parent.mkdir(parents=True, exist_ok=True)
        numbers = {"visits": str(truth.visits), "lines": str(truth.lines)}
        incoming = path.with_name(f"_{path.name}")
        pq.write_table(truth.defects.replace_schema_metadata(numbers), incoming)
        incoming.replace(path)

    def hour(self, hour: datetime) -> HourTruth:
        """Read one hour; raises FileNotFoundError when the simulator did not land it."""
        table = pq.ParquetFile(self.file(hour)).read()
        metadata = table.schema.metadata
        return HourTruth(full_hour(hour), int(metadata[b"visits"]), int(metadata[b"lines"]), table)

    def hours(self) -> list[datetime]:
        """Hours with a truth, oldest first."""
        return sorted(
            datetime.strptime(f"{path.parent.name} {path.stem} +0000", "date=%Y-%m-%d hour=%H %z")
            for path in self._folder.glob("date=*/hour=*.parquet")
        )

    def counts(self, hours: Sequence[datetime] | None = None) -> dict[datetime, Counter[str]]:
        """Defects per kind, per hour; of all hours unless told which."""
        return {hour: self.hour(hour).counts for hour in (self.hours() if hours is None else hours)}

    def ids(self, kind: str, hours: Sequence[datetime] | None = None) -> list[str]:
        """Visit ids with a defect; of all hours unless told which."""
        return [key for hour in (self.hours() if hours is None else hours) for key in self.hour(hour).ids(kind)]
