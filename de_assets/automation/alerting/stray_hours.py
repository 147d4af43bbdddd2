"""Landed hours that the calendar does not have: nothing reads them, so that somebody has to hear of them."""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from datetime import UTC, datetime, timedelta

import dagster as dg

from de_assets.automation.alerting.alert import PARTITIONS_SHOWN, Alert
from de_assets.automation.alerting.alerting import Alerting
from de_assets.calendar import Calendar
from de_assets.dataset import pattern_tags
from de_assets.partitions import CALENDAR, hourly
from de_assets.sources.landing_zone import LandingZone
from de_assets.sources.systems import LANDED_VISITS
from de_resources.alerts.book import EVERYTHING, AlertCondition

SUBJECT = "check sources/landed_visits:hours_are_in_the_calendar"


def outside(calendar: Calendar, hours: Collection[datetime], now: datetime) -> list[datetime]:
    """Those of the hours that the calendar does not have. An open one ends an hour from now, for clocks differ."""
    end = calendar.end or now + timedelta(hours=1)
    return sorted(hour for hour in hours if not calendar.start <= hour < end)


@dg.sensor(
    name="visits_outside_calendar",
    description="Opens an alert for landed hours that no partition reads, until all of them are read or gone.",
    minimum_interval_seconds=300,
    default_status=dg.DefaultSensorStatus.RUNNING,
    tags=pattern_tags("readiness_marker"),
)
def visits_outside_calendar(
    context: dg.SensorEvaluationContext, landing: LandingZone, alerting: dg.ResourceParam[Alerting]
) -> dg.SensorResult:
    """One alert for all of them, one when there are none any more. Requests nothing: what they are, a person knows."""
    now = datetime.now(UTC)
    hours = outside(CALENDAR, landing.arrivals().hours, now)
    if not hours:
        alerting.tell([AlertCondition(SUBJECT, {}, good=EVERYTHING)])
        return dg.SensorResult(cursor="", skip_reason=f"All landed hours are in the calendar {CALENDAR}.")
    seen = hashlib.blake2b(repr(hours).encode(), digest_size=12).hexdigest()
    told = f"{len(hours)} landed hours are outside the calendar {CALENDAR}, from {hours[0]:%Y-%m-%dT%H}."
    if seen != context.cursor:
        context.log.error("%s `de land` makes the calendar grow; DE_CALENDAR sets it.", told)
        bad = frozenset(hour.strftime(hourly.fmt) for hour in hours)
        alerting.tell([AlertCondition(SUBJECT, _alert(hours, now).body(), bad, good=EVERYTHING)])
    return dg.SensorResult(cursor=seen, skip_reason=told)


def _alert(hours: list[datetime], now: datetime) -> Alert:
    return Alert(
        kind="check_failed",
        severity="ERROR",
        run_id=None,
        time=now.isoformat(timespec="seconds"),
        assets=(LANDED_VISITS.to_user_string(),),
        partitions=tuple(hour.strftime(hourly.fmt) for hour in hours[:PARTITIONS_SHOWN]),
        partition_count=len(hours),
        check="hours_are_in_the_calendar",
    )
