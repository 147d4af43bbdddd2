"""What `de run` says of the visits: those of its calendar, also where the tables hold an earlier one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from de_assets.partitions import CALENDAR
from de_assets.visits_account import visits_account

HOUR = timedelta(hours=1)


def write(lake: Path, name: str, rows: list[dict[str, object]]) -> None:
    write_deltalake(str(lake / name), pa.Table.from_pylist(rows), partition_by=["landing_hour"])


@pytest.mark.pattern("dead_letter")
def test_letters_of_an_earlier_calendar_are_not_counted(tmp_path: Path) -> None:
    now = CALENDAR.start.astimezone(UTC)
    before: datetime = now - 24 * HOUR
    write(tmp_path, "bronze/visits", [{"landing_hour": hour, "page": "/"} for hour in (now, now, now + HOUR, before)])
    letters = [(now, "no page"), (now + HOUR, "no page"), (now, "no user"), (before, "no page"), (before, "no time")]
    rows = [
        {"landing_hour": hour, "reason": reason, "source_file": "a.log", "source_line": line}
        for line, (hour, reason) in enumerate(letters, 1)
    ]
    write(tmp_path, "bronze/visits_dead_letter", rows)
    told = list(visits_account(str(tmp_path)))
    assert told[0].startswith("Visits: 6 records, 3 dead letter(s), 3 understood in 2 hourly partitions")
    assert sorted(told[2:]) == [
        "  a.log line 1: no page",
        "  a.log line 2: no page",
        "  a.log line 3: no user",
        "  dead letters, no page: 2",
        "  dead letters, no user: 1",
    ]


def test_nothing_landed_is_nothing_told_of_letters(tmp_path: Path) -> None:
    assert [line for line in visits_account(str(tmp_path)) if "dead letters," in line] == []
