"""A database that is away: for ten seconds it costs no red run, for ten minutes one alert and one recovery.

The server is a real one that is killed under a run, which has a session open. Pauses between attempts take no time, and the
minutes are told to the sensors.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any

import dagster as dg
import pytest
from instances import silent_instance
from platform_world import take_away
from waiting import waits

from de_assets.automation.alerting.alerting import Alerting
from de_assets.automation.alerting.sensor import alerts
from de_assets.automation.alerting.sinks import LogAlertSink
from de_assets.automation.triggers import legacy_due
from de_assets.partitions import hourly
from de_assets.sources.systems import LEGACY_VISITS_RELATION
from de_resources.local import LocalServices
from de_resources.postgres import PostgresDatabase
from de_resources.retries import RETRY_TRANSIENT

pytestmark = [pytest.mark.services, pytest.mark.faults]

AWAY_FOR = 10.0
"""Seconds of the clock by which steps wait."""
LEGACY, REPORT = legacy_due.LEGACY_VISITS, dg.AssetKey(["gold", "report"])


class Night:
    """A database of its own, an instance, the sensor that asks for its hours and the one that alerts; time is told."""

    def __init__(self, services: LocalServices, instance: dg.DagsterInstance) -> None:
        self.services, self.instance = services, instance
        self.now = datetime.now(UTC)
        self.cursor: str | None = None
        self.in_the_middle: list[Callable[[], None]] = []
        self.answers: list[object] = []
        self.log = LogAlertSink(path=str(services.settings.home / "alerts.jsonl"))
        self.alerting = Alerting(
            services.settings.home, {"log": self.log}, services=services.status, now=lambda: self.now
        )
        self.assets = [self.asset(LEGACY, hourly), self.asset(REPORT)]

    def asset(self, key: dg.AssetKey, calendar: dg.PartitionsDefinition[str] | None = None) -> dg.AssetsDefinition:
        policy = dg.BackfillPolicy.single_run()

        @dg.asset(key=key, partitions_def=calendar, backfill_policy=policy, retry_policy=RETRY_TRANSIENT)
        def read(database: PostgresDatabase) -> None:
            with database.connect() as session, session.cursor() as cursor:
                cursor.execute("SELECT 42")
                if self.in_the_middle:
                    self.in_the_middle.pop()()
                cursor.execute("SELECT 42")
                self.answers.append(cursor.fetchone())

        return read

    def goes_away(self) -> None:
        take_away(self.services, "postgres")

    def comes_back(self) -> None:
        self.services.up(["postgres"])

    def run(self, key: dg.AssetKey, **tags: str) -> dg.ExecuteInProcessResult:
        (asset,) = (each for each in self.assets if each.key == key)
        resources = {"database": PostgresDatabase()}
        return dg.materialize([asset], instance=self.instance, resources=resources, tags=tags, raise_on_error=False)

    def minute(self) -> list[bool]:
        """One more minute: hours that are due are asked for and run, then alerts are told. How the runs ended."""
        self.now += timedelta(minutes=1)
        with dg.build_sensor_context(self.instance, resources={"database": PostgresDatabase()}) as context:
            asked = legacy_due.legacy_hours_due(context)
        assert isinstance(asked, list | dg.SkipReason)
        requests = asked if isinstance(asked, list) else []
        ended = [self.run(LEGACY, **each.tags).success for each in requests]
        with dg.build_sensor_context(self.instance, self.cursor, resources={"alerting": self.alerting}) as context:
            result = alerts(context)
        assert isinstance(result, dg.SensorResult)
        self.cursor = result.cursor
        return ended

    def told(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.file.read_text().splitlines()] if self.log.file.exists() else []


@pytest.fixture(scope="module")
def database(new_services: Callable[[], LocalServices]) -> LocalServices:
    """A database that nobody else asks."""
    return new_services()


@pytest.fixture
def night(database: LocalServices, monkeypatch: pytest.MonkeyPatch) -> Iterator[Night]:
    monkeypatch.setenv("DE_HOME", str(database.settings.home))
    database.up(["postgres"])
    with PostgresDatabase().connect() as session, session.cursor() as cursor:
        cursor.execute(f"CREATE TABLE IF NOT EXISTS {LEGACY_VISITS_RELATION} AS SELECT 1 AS visit")
    with silent_instance() as instance:
        it = Night(database, instance)

        class Told(datetime):
            @classmethod
            def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
                return it.now.astimezone(tz)

        monkeypatch.setattr(legacy_due, "datetime", Told)
        yield it


def test_ten_seconds_cost_no_red_run(night: Night, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where jitter makes every pause as short as it can be."""
    monkeypatch.setattr("dagster._core.definitions.policy.random", lambda: 0.0)
    night.in_the_middle = [night.goes_away]

    def back_in_time() -> None:
        if sum(slept) >= AWAY_FOR and night.services.endpoint("postgres") is None:
            night.comes_back()

    with waits(back_in_time) as slept:
        done = night.run(REPORT)
    assert done.success, [event.event_specific_data for event in done.get_step_failure_events()]
    assert night.answers == [(42,)]
    first, *_ = [e for e in done.all_events if e.event_type == dg.DagsterEventType.STEP_UP_FOR_RETRY]
    assert "SessionLost: postgres at 127.0.0.1" in str(first.step_retry_data.error), "the server died under the session"
    night.minute()
    assert night.told() == []


def test_ten_minutes_cost_one_alert_and_one_recovery(night: Night) -> None:
    night.in_the_middle = [night.goes_away]
    with waits() as slept:
        ended = night.minute()
        assert ended == [False], "the hours were asked for, and the database died while they were read"
        assert sum(slept) > AWAY_FOR
        for number in range(9):
            assert night.minute() == [], "what is away is asked for nothing"
            if number in (3, 6):
                assert not night.run(REPORT).success, "what others launch fails as well"
        (alert,) = night.told()
        assert (alert["event"], alert["kind"], alert["severity"]) == ("opened", "service_failed", "ERROR")

        night.comes_back()
        ended = [each for _ in range(3) for each in night.minute()]
        assert ended == [True], "the hours are asked for again, once"
        assert len(night.told()) == 1, "the report is not there yet"
        assert night.run(REPORT).success
        night.minute()
        night.minute()
    assert [each["event"] for each in night.told()] == ["opened", "recovered"]
    assert night.told()[1]["text"].startswith("RECOVERED: ")
    assert night.alerting.book.open_alerts() == []
