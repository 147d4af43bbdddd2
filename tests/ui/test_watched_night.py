"""The real daemon in an open calendar: a partition that never comes is told at its deadline, and the observatory shows it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg
import pytest
from test_silent_source import INSTANCE
from web_ui import DagsterProcess, until, wind

from de_resources.alerts.book import AlertBook, OpenAlert

pytestmark = [pytest.mark.ui, pytest.mark.pattern("sla_misses_detector")]

LOCATION = Path(__file__).with_name("watched_location.py")
SECONDS, HOUR = 240.0, timedelta(hours=1)
SALES = dg.AssetKey(["gold", "sales"])


@dataclass
class Night:
    """The home that the daemon watches. The clock of its promises is the test's; that of its schedules is the real one."""

    root: Path
    begin: datetime = field(default_factory=lambda: datetime.now(UTC).replace(minute=0, second=0, microsecond=0))

    def __post_init__(self) -> None:
        (self.root / "dagster").mkdir()
        (self.root / "dagster" / "dagster.yaml").write_text(INSTANCE)
        self.instance = dg.DagsterInstance.from_config(str(self.root / "dagster"))
        (self.root / "begin").write_text((self.begin - HOUR).isoformat())
        self.wind(self.begin)

    def wind(self, moment: datetime) -> None:
        wind(self.root, moment)

    def comes(self, hour: datetime) -> None:
        self.instance.report_runless_asset_event(dg.AssetMaterialization(SALES, partition=f"{hour:%Y-%m-%d-%H:%M}"))

    def opened(self) -> list[OpenAlert]:
        return AlertBook.of_home(self.root).open_alerts()

    def shown(self) -> str:
        index = self.root / "observatory" / "index.html"
        return index.read_text() if index.exists() else ""


@pytest.fixture
def night(tmp_path: Path) -> Iterator[Night]:
    night = Night(tmp_path)
    yield night
    night.instance.dispose()


def test_the_daemon_tells_what_never_came_and_the_page_shows_it_until_it_came(night: Night) -> None:
    places = {"DE_HOME": night.root, "DAGSTER_HOME": night.root / "dagster", "SILENT_ROOT": night.root}
    environment = {**os.environ, **{name: str(place) for name, place in places.items()}}
    night.comes(night.begin - HOUR)
    daemon = DagsterProcess(["dagster._daemon", "run", "-f", str(LOCATION)], environment)
    try:
        until(lambda: "<html" in night.shown(), SECONDS, daemon.output)
        assert (night.opened(), "Not there at the deadline" in night.shown()) == ([], False), "its hour is not over"

        night.wind(night.begin + HOUR + timedelta(minutes=30))
        until(lambda: [each.subject for each in night.opened()] == ["deadline gold/sales"], SECONDS, daemon.output)
        (alert,) = night.opened()
        assert alert.members == (f"{night.begin:%Y-%m-%d-%H:%M}",)
        until(lambda: "Not there at the deadline" in night.shown(), SECONDS, daemon.output)

        night.comes(night.begin)
        until(lambda: night.opened() == [], SECONDS, daemon.output)
        until(lambda: "Not there at the deadline" not in night.shown(), SECONDS, daemon.output)
    finally:
        daemon.kill()
    runs = night.instance.get_runs()
    assert {run.job_name for run in runs} == {"observatory"}
