"""A code location that reads a database: hours that are due, a report that is asked for, and alerts, by the test's clock."""

import os
import time
from datetime import UTC, datetime, tzinfo
from pathlib import Path

import dagster as dg
from waiting import PATIENCE

from de_assets.automation.alerting.alerting import Alerting
from de_assets.automation.alerting.sensor import alerts
from de_assets.automation.alerting.sinks import LogAlertSink
from de_assets.automation.triggers import legacy_due
from de_assets.partitions import hourly
from de_resources.local import LocalServices
from de_resources.postgres import PostgresDatabase
from de_resources.retries import RETRY_TRANSIENT
from de_resources.settings import Settings

ROOT = Path(os.environ["NIGHT_ROOT"])
REPORT = dg.AssetKey(["gold", "report"])


class Told(datetime):
    """What time it is in this world."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
        return datetime.fromisoformat((ROOT / "clock").read_text()).astimezone(tz)


legacy_due.datetime = Told  # type: ignore[misc]


def in_a_session() -> None:
    """Tell the test that a session is open, where it wants to know, and wait for what it does meanwhile."""
    if not (ROOT / "interrupt").exists():
        return
    (ROOT / "interrupt").rename(ROOT / "in session")
    deadline = time.monotonic() + PATIENCE
    while (ROOT / "in session").exists() and time.monotonic() < deadline:
        time.sleep(0.05)


def reading(key: dg.AssetKey, calendar: dg.PartitionsDefinition[str] | None = None) -> dg.AssetsDefinition:
    """An asset of two questions to the database, in one session."""

    @dg.asset(
        key=key, partitions_def=calendar, backfill_policy=dg.BackfillPolicy.single_run(), retry_policy=RETRY_TRANSIENT
    )
    def read(database: PostgresDatabase) -> None:
        with database.connect() as session, session.cursor() as cursor:
            cursor.execute("SELECT 42")
            in_a_session()
            cursor.execute("SELECT 42")

    return read


@dg.sensor(
    target=dg.AssetSelection.assets(REPORT), minimum_interval_seconds=1, default_status=dg.DefaultSensorStatus.RUNNING
)
def report_asked(context: dg.SensorEvaluationContext) -> dg.RunRequest | dg.SkipReason:
    """A person who asks for the report, once for each word in the file."""
    asked = ROOT / "asked"
    return dg.RunRequest(run_key=asked.read_text()) if asked.exists() else dg.SkipReason("Nobody asks.")


def every_second(sensor: dg.SensorDefinition, *resources: str) -> dg.SensorDefinition:
    """The platform's sensor, as it is, more often."""

    @dg.sensor(
        name=sensor.name,
        target=dg.AssetSelection.assets(legacy_due.LEGACY_VISITS),
        minimum_interval_seconds=1,
        default_status=dg.DefaultSensorStatus.RUNNING,
        required_resource_keys=set(resources),
    )
    def look(context: dg.SensorEvaluationContext) -> object:
        return sensor(context)

    return look


defs = dg.Definitions(
    [reading(legacy_due.LEGACY_VISITS, hourly), reading(REPORT)],
    sensors=[every_second(legacy_due.legacy_hours_due, "database"), every_second(alerts, "alerting"), report_asked],
    resources={
        "database": PostgresDatabase(),
        "alerting": Alerting(
            sinks={"log": LogAlertSink(path=str(ROOT / "alerts.jsonl"))},
            services=LocalServices(Settings.from_environment()).status,
            now=lambda: Told.now(UTC),
        ),
    },
    executor=dg.in_process_executor,
)
