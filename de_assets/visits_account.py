"""What became of the landed visits, in sentences: from the tables' logs, without the engine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from de_assets.partitions import rows_in_calendar
from de_resources.delta.log import TableLog

_VISITS = ("bronze/visits", "bronze/visits_dead_letter", "silver/visits", "silver/visits_late")


def visits_account(lake_root: str) -> Iterator[str]:
    """Records, dead letters, duplicates, late visits, visits per day, and reasons of dead letters.

    Texts of letters are personal data and not told.
    """
    rows = {name: rows_in_calendar(TableLog.open(f"{lake_root}/{name}")) for name in _VISITS}
    bronze, dead, valid, late = (sum(rows[name].values()) for name in _VISITS)
    yield (
        f"Visits: {bronze + dead:,} records, {dead:,} dead letter(s), {bronze:,} understood in "
        f"{len(rows['bronze/visits'])} hourly partitions, {bronze - valid - late:,} duplicate(s) removed, "
        f"{late:,} late or future, {valid:,} valid."
    )
    per_day: Counter[str] = Counter()
    for (hour, *_), count in rows["bronze/visits"].items():
        per_day[f"{hour:%Y-%m-%d}"] += count
    yield "Visits per day before deduplication: " + ", ".join(f"{d} {n:,}" for d, n in sorted(per_day.items()))
    yield from _dead_letters(f"{lake_root}/{_VISITS[1]}", {hour for hour, *_ in rows[_VISITS[1]]})


def _dead_letters(uri: str, hours: Collection[datetime]) -> Iterator[str]:
    """The reasons of the letters of these hours: a table may hold those of an earlier calendar too."""
    if not hours:
        return
    table = DeltaTable(uri).to_pyarrow_table(columns=["landing_hour", "reason", "source_file", "source_line"])
    known = pa.array([hour.replace(tzinfo=UTC) for hour in hours], table.schema.field("landing_hour").type)
    columns = table.filter(pc.is_in(table["landing_hour"], known))
    for entry in pc.value_counts(columns["reason"]).to_pylist():
        yield f"  dead letters, {entry['values']}: {entry['counts']:,}"
    for row in columns.filter(pc.is_valid(columns["source_line"])).slice(0, 5).to_pylist():
        yield f"  {row['source_file']} line {row['source_line']}: {row['reason']}"
