"""Two run workers at one table at once, brought together at a crash point: both land, or one wins, and none corrupts."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from platform_world import KEYS, Lakehouse, Report

pytestmark = [pytest.mark.services, pytest.mark.faults, pytest.mark.pattern("data_overwrite")]

ASSETS = ["bronze/visits", "bronze/visits_dead_letter"]


def together(lakehouse: Lakehouse, keys: Sequence[str], point: str) -> list[Report]:
    """Two workers, each with one hour of the same tables; both reach the point of the first before one goes on."""
    folder = lakehouse.folder / "meeting"
    folder.mkdir()
    workers = [
        lakehouse.start(
            {"assets": ASSETS, "first": key, "last": key},
            meet={
                "point": point,
                "table": "bronze.visits_dead_letter",
                "folder": str(folder),
                "me": me,
                "other": other,
            },
        )
        for key, me, other in zip(keys, "xy", "yx", strict=True)
    ]
    return [worker.end() for worker in workers]


def test_different_hours_of_a_table_that_does_not_exist_yet_both_land(lakehouse: Lakehouse) -> None:
    reports = together(lakehouse, KEYS[:2], "before_write")
    assert [run["failures"] for report in reports for run in report.runs] == [{}, {}]

    alone = lakehouse.per_key("bronze/visits", "landing_hour")
    assert set(alone) == set(KEYS[:2])
    assert all(alone[key] >= 95 for key in alone)


def test_the_same_hour_has_the_rows_of_one_run(lakehouse: Lakehouse) -> None:
    lakehouse.run({"assets": ASSETS, "first": KEYS[0], "last": KEYS[1]}).succeeded()
    before = {table: lakehouse.multiset(table) for table in ASSETS}

    reports = together(lakehouse, [KEYS[0], KEYS[0]], "before_commit")

    succeeded = [report.runs[0]["success"] for report in reports]
    assert any(succeeded)
    for report in reports:
        assert report.status == 0, report.output[-3000:]
        for reason in report.runs[0]["failures"].values():
            assert "DELTA_CONCURRENT" in reason, "who loses says why"
    assert {table: lakehouse.multiset(table) for table in ASSETS} == before
