"""The real daemon over a database that is killed under a run and away for ten minutes: one alert, one recovery.

A long proof (`make soak`). The server is a real one; steps wait as they do in production, and the minutes are told to the
sensors.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg
import pytest
from test_silent_source import INSTANCE
from web_ui import DagsterProcess, looks, until, wind

from de_assets.sources.systems import LEGACY_VISITS_RELATION
from de_resources.alerts.book import AlertBook
from de_resources.local import LocalServices
from de_resources.local.endpoints import ServiceState
from de_resources.postgres import PostgresDatabase
from de_resources.settings import Settings

pytestmark = [pytest.mark.ui, pytest.mark.faults, pytest.mark.pattern("sla_misses_detector")]

LOCATION = Path(__file__).with_name("database_location.py")
SECONDS = 180.0
FAILED, SUCCESS = dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.SUCCESS


class Night:
    """A home with a database, what the daemon over it has recorded, and the clock of its sensors."""

    def __init__(self, home: Path) -> None:
        self.home = home
        (home / "dagster").mkdir()
        (home / "dagster" / "dagster.yaml").write_text(INSTANCE)
        places = {"DE_HOME": home, "DAGSTER_HOME": home / "dagster", "NIGHT_ROOT": home}
        tests = {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])}
        self.environment = {**os.environ, **{name: str(place) for name, place in places.items()}, **tests}
        self.services = LocalServices(Settings.from_environment(self.environment))
        self.instance = dg.DagsterInstance.from_config(str(home / "dagster"))
        self.now = datetime.now(UTC)
        self.minute(0)
        self.what: Callable[[], str] = str

    def minute(self, minutes: int = 1) -> None:
        """Time passes."""
        self.now += timedelta(minutes=minutes)
        wind(self.home, self.now)

    def until(self, condition: Callable[[], object]) -> None:
        until(condition, SECONDS, lambda: f"{self.ended()}; {self.told()}; {self.what()}")

    def ended(self) -> list[tuple[str, dg.DagsterRunStatus]]:
        """The runs that are over, oldest first: what of, and how it ended."""
        runs = [run for run in self.instance.get_runs()[::-1] if run.is_finished]
        return [
            ("hours" if "dagster/asset_partition_range_start" in run.tags else "report", run.status) for run in runs
        ]

    def told(self) -> list[dict[str, object]]:
        file = self.home / "alerts.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def look(self) -> None:
        """Every sensor has begun and ended a look at what is there now."""
        before = looks(self.instance)
        self.until(lambda: all(now >= before[name] + 2 for name, now in looks(self.instance).items()))

    def kill_database(self) -> None:
        """While a run has a session open."""
        waits = self.home / "in session"
        self.until(waits.exists)
        (status,) = [each for each in self.services.status() if each.name == "postgres"]
        assert status.pid is not None
        os.kill(status.pid, signal.SIGKILL)
        self.until(lambda: [s.state for s in self.services.status() if s.name == "postgres"] == [ServiceState.FAILED])
        waits.unlink()

    def ask(self, word: str) -> None:
        (self.home / "asked").write_text(word)


@pytest.fixture
def night() -> Iterator[Night]:
    # Not pytest's own temporary folder: the account of the database may not enter it.
    home = Path(tempfile.mkdtemp(prefix="de-ui-"))
    home.chmod(0o711)
    night = Night(home)
    night.services.up(["postgres"])
    yield night
    night.services.down()
    night.instance.dispose()
    shutil.rmtree(home)


def test_ten_minutes_without_a_database_are_one_alert_and_one_recovery(
    night: Night, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DE_HOME", str(night.home))
    with closing(PostgresDatabase().open()) as session, session.cursor() as cursor:
        cursor.execute(f"CREATE TABLE {LEGACY_VISITS_RELATION} AS SELECT 1 AS visit")
        session.commit()
    (night.home / "interrupt").touch()
    with DagsterProcess(["dagster._daemon", "run", "-f", str(LOCATION)], night.environment) as daemon:
        night.what = daemon.output
        night.kill_database()
        night.until(lambda: night.ended() == [("hours", FAILED)])
        night.until(night.told)
        for minute in range(9):
            night.minute()
            if minute == 3:
                night.ask("in vain")
                night.until(lambda: night.ended()[1:] == [("report", FAILED)])
            night.look()
        assert night.ended() == [("hours", FAILED), ("report", FAILED)], "what is away is asked for nothing"
        (alert,) = night.told()
        assert (alert["event"], alert["kind"], alert["severity"]) == ("opened", "service_failed", "ERROR")

        night.services.up(["postgres"])
        night.minute(3)
        night.until(lambda: night.ended()[2:] == [("hours", SUCCESS)])
        night.look()
        assert len(night.told()) == 1, "the report is not there yet"
        night.ask("again")
        night.until(lambda: len(night.told()) == 2)
        night.look()
        assert night.ended()[2:] == [("hours", SUCCESS), ("report", SUCCESS)], "the hours were asked for again, once"
    assert [each["event"] for each in night.told()] == ["opened", "recovered"]
    assert AlertBook.of_home(night.home).open_alerts() == []
