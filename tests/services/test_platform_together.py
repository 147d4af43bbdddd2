"""Two run workers at one table at once, brought together at a crash point: both land, or one wins, and none corrupts."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from platform_world import KEYS, Lakehouse, Platform, Report

pytestmark = [pytest.mark.services, pytest.mark.faults, pytest.mark.pattern("data_overwrite")]

ASSETS = ["bronze/visits", "bronze/visits_dead_letter"]


def together(lakehouse: Lakehouse, keys: Sequence[str], point: str) -> list[Report]:
    """Two workers, each with one hour of the same tables; both reach the point of the first before one goes on."""
    folder = lakehouse.folder / point
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


@pytest.fixture(scope="module")
def lake(fed_platform: Platform, tmp_path_factory: pytest.TempPathFactory) -> Lakehouse:
    """Empty at first; the second test has what the first one left."""
    fed_platform.up()
    return Lakehouse(fed_platform.services, tmp_path_factory.mktemp("together"))


def test_different_hours_of_a_table_that_does_not_exist_yet_both_land(lake: Lakehouse) -> None:
    reports = together(lake, KEYS[:2], "before_write")
    assert [run["failures"] for report in reports for run in report.runs] == [{}, {}]

    alone = lake.per_key("bronze/visits", "landing_hour")
    assert set(alone) == set(KEYS[:2])
    assert all(alone[key] >= 95 for key in alone)


def test_the_same_hour_has_the_rows_of_one_run(lake: Lakehouse) -> None:
    if not lake.root.exists():  # alone, without the test before
        lake.run({"assets": ASSETS, "first": KEYS[0], "last": KEYS[1]}).succeeded()
    before = {table: lake.multiset(table) for table in ASSETS}

    reports = together(lake, [KEYS[0], KEYS[0]], "before_commit")

    succeeded = [report.runs[0]["success"] for report in reports]
    assert any(succeeded)
    for report in reports:
        assert report.status == 0, report.output[-3000:]
        for reason in report.runs[0]["failures"].values():
            assert "DELTA_CONCURRENT" in reason, "who loses says why"
    assert {table: lake.multiset(table) for table in ASSETS} == before
