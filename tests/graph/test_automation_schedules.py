"""The daily reload of the devices."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import dagster as dg

from de_assets.automation.schedules import devices_reload
from de_assets.sources.landing import DEVICES, MARKER
from de_assets.sources.landing_zone import LandingZone


def evaluate(landing: Path) -> object:
    context = dg.build_schedule_context(
        scheduled_execution_time=datetime(2024, 10, 11, 4, tzinfo=UTC),
        resources={"landing": LandingZone(root=str(landing))},
    )
    return devices_reload(context)


def test_complete_dump_is_loaded_once_a_day(tmp_path: Path) -> None:
    (tmp_path / DEVICES).mkdir()
    (tmp_path / DEVICES / MARKER).touch()
    request = evaluate(tmp_path)
    assert isinstance(request, dg.RunRequest)
    assert request.run_key == "2024-10-11"


def test_day_without_a_complete_dump_is_skipped(tmp_path: Path) -> None:
    (tmp_path / DEVICES).mkdir()
    assert isinstance(evaluate(tmp_path), dg.SkipReason)
