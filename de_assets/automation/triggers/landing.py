"""Readiness Marker: an hour of landed visits is requested when it is complete, by its marker or by its successor.

The instance, not the sensor, remembers what was requested: an hour is free as long as no run has materialised it or
plans to. So an hour is requested once even when the sensor restarts, loses its cursor, or somebody launches the hour by
hand. A failed hour is for people (see the sensor `alerts`), unless its producer lands it again.

The cursor remembers how each closed folder looked. One that looks different later is reported, as an observation of
`sources/landed_visits` and in the tick's log. It is read again when its producer says that it has only grown, as by the next
log of the same hour, and when files of it could not be read to their end, or nothing of it was
understood, as of an error page in its place: what is missing was told, and may have been repaired.
Late data then goes its way. Anything else would change published numbers silently, and is for people.

Contiguous free hours become one run. The tables take a range in one commit, so that catching up with three days costs
one engine session and not seventy-two; in steady operation there is one free hour, hence one run for it.

A tick looks into those folders only on which its plan depends: at the hours that the cursor watches, and at those that nobody
has taken. What a year of closed hours costs is one listing per day.
"""

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from typing import NamedTuple

import dagster as dg

from de_assets.automation.triggers.asked_for import asked_for
from de_assets.dataset import pattern_tags
from de_assets.partitions import CALENDAR, hourly, hours_of_calendar
from de_assets.ranges import contiguous, range_tags
from de_assets.sources.landing_zone import LandingZone
from de_assets.sources.systems import LANDED_VISITS
from de_checks.damaged_files import damage_of
from de_checks.dead_letters import nothing_was_understood
from de_checks.per_key import latest_materializations
from de_resources.sensor_interval import sensor_seconds

VISITS = dg.AssetKey(["bronze", "visits"])
DEAD_LETTERS = dg.AssetKey(["bronze", "visits_dead_letter"])

HOURS_PER_RUN = 7 * 24
RUNS_PER_TICK = 4
WATCHED_HOURS = 31 * 24
"""Closed folders that are watched for changes, newest first; it bounds the cursor."""


class Taken(NamedTuple):
    """Hours that runs have taken: read by one, being read for the first time, and failed before they were read."""

    read: set[datetime]
    running: set[datetime]
    failed: set[datetime]


@dataclass(frozen=True)
class LandingPlan:
    """What one tick does: ranges to request, closed hours to report, and the looks to remember for the next tick."""

    ranges: list[list[datetime]]
    changed: list[datetime]
    grown: list[datetime]
    """Those of `changed` that are requested again."""
    seen: dict[datetime, str]


@dg.sensor(
    name="visits_hour_landed",
    description="Requests an hour of landed visits when it is complete; reports folders that change later.",
    target=dg.AssetSelection.assets(VISITS, DEAD_LETTERS),
    minimum_interval_seconds=sensor_seconds(),
    default_status=dg.DefaultSensorStatus.RUNNING,
    tags=pattern_tags("readiness_marker"),
)
def visits_hour_landed(context: dg.SensorEvaluationContext, landing: LandingZone) -> dg.SensorResult:
    """Request the closed hours that no run has taken. Starts no engine."""
    arrivals = landing.arrivals()
    hours = _of_calendar(arrivals.hours)
    seen = {datetime.fromisoformat(hour): look for hour, look in json.loads(context.cursor or "{}").items()}
    taken = _taken(context.instance, hours)
    looks = looks_to_take(hours, seen, taken, arrivals.look)
    read, running, failed = (known & looks.keys() for known in taken)
    repairable = partial(_was_not_all_read, context.instance)
    plan = make_plan(looks, seen, read, running, failed, lambda hour: arrivals.has_grown(hour) or repairable(hour))
    for hour in plan.changed:
        what = (
            "It has grown, or was not all read, and is read again"
            if hour in plan.grown
            else "It is not read again by itself"
        )
        context.log.warning("The folder of %s changed after it was read. %s.", _key(hour), what)
    waiting, outside = len(hours) - len(set().union(*taken)), len(arrivals.hours) - len(hours)
    return dg.SensorResult(
        run_requests=[_request(hours, plan.seen) for hours in plan.ranges],
        asset_events=[_report(hour, grown=hour in plan.grown) for hour in plan.changed],
        cursor=json.dumps({hour.isoformat(): look for hour, look in sorted(plan.seen.items())}),
        skip_reason=None
        if plan.ranges or plan.changed
        else f"{len(hours) - waiting} hours, all taken; {waiting} not complete; {outside} outside the calendar {CALENDAR}.",
    )


def looks_to_take(
    hours: Collection[datetime], seen: Collection[datetime], taken: Taken, look: Callable[[datetime], str | None]
) -> dict[datetime, str]:
    """Of all hours that there are, the looks at those on which the plan depends.

    These are the hours in the cursor, the newest ones that will be in it, and of those that nobody has taken the oldest, as
    many as one tick requests. All others are folders of hours that were read long ago and are watched no more.
    """
    everything = set().union(*taken)
    newest = _first(sorted(everything, reverse=True), WATCHED_HOURS, look)
    judged = _first(sorted((taken.read | taken.failed).intersection(seen)), len(everything), look)
    # One more than fits in, so that the last range ends where it would among all hours.
    free = _first(sorted(set(hours) - everything), HOURS_PER_RUN * RUNS_PER_TICK + 1, look)
    return newest | judged | free


def _first(hours: Iterable[datetime], count: int, look: Callable[[datetime], str | None]) -> dict[datetime, str]:
    """The first hours that are closed, with their looks."""
    looks = ((hour, found) for hour in hours if (found := look(hour)) is not None)
    return dict(islice(looks, count))


def make_plan(
    looks: Mapping[datetime, str],
    seen: Mapping[datetime, str],
    read: Collection[datetime],
    running: Collection[datetime],
    failed: Collection[datetime],
    has_grown: Callable[[datetime], bool] = lambda _hour: False,
) -> LandingPlan:
    """Decide about complete hours.

    `looks` are today's fingerprints and `seen` those that were requested or reported, `read` the hours that a run has
    materialised, `running` those that one is about to, `failed` those that were tried and never read. What changes while
    its run is under way is reported when that run has read it, and requested again when it has failed. What changed and
    `has_grown` is reported when it is requested.
    """
    # What failed and was landed again since is another folder, which nobody has read.
    tried = {hour for hour in failed if seen.get(hour) in (None, looks[hour])}
    different = {hour for hour in read if seen.get(hour, looks[hour]) != looks[hour]}
    grown = {hour for hour in different if has_grown(hour)}
    free = [hour for hour in sorted(looks) if hour in grown or hour not in {*read, *running, *tried}]
    ranges = contiguous(free, timedelta(hours=1), at_most=HOURS_PER_RUN)[:RUNS_PER_TICK]
    requested = {hour for hours in ranges for hour in hours}
    again = grown & requested
    known = {
        **{hour: looks[hour] for hour in running},
        **seen,
        **{hour: looks[hour] for hour in (*(set(read) - grown), *tried, *requested)},
    }
    changed = sorted((different - grown) | again)
    return LandingPlan(ranges, changed, sorted(again), dict(sorted(known.items())[-WATCHED_HOURS:]))


def _was_not_all_read(instance: dg.DagsterInstance, hour: datetime) -> bool:
    """Whether a file of the hour could not be read to its end when it was taken in, or nothing of what came was understood."""
    key = _key(hour)
    visits, letters = (latest_materializations(instance, asset, [key]).get(key) for asset in (VISITS, DEAD_LETTERS))
    return bool(damage_of(letters)) or nothing_was_understood(visits, letters)


def _taken(instance: dg.DagsterInstance, hours: Collection[datetime]) -> Taken:
    """Of these hours, those that were read, that are being read for the first time, and that failed before they were."""
    materialised = instance.get_materialized_partitions(VISITS)
    keys = {hour: _key(hour) for hour in hours}
    unread = {hour: key for hour, key in keys.items() if key not in materialised}
    status = instance.get_status_by_partition(VISITS, list(unread.values()), hourly) or {} if unread else {}
    asked = asked_for(instance, visits_hour_landed.name, unread.values())
    running = {
        hour for hour, key in unread.items() if key in asked or status.get(key) == dg.AssetPartitionStatus.IN_PROGRESS
    }
    failed = {hour for hour, key in unread.items() if status.get(key) == dg.AssetPartitionStatus.FAILED}
    return Taken(keys.keys() - unread.keys(), running, failed)


def _request(hours: list[datetime], looks: Mapping[datetime, str]) -> dg.RunRequest:
    first, last = _key(hours[0]), _key(hours[-1])
    identity = hashlib.blake2b("".join(looks[hour] for hour in hours).encode(), digest_size=6).hexdigest()
    run_key = f"{first}..{last}@{identity}"
    if len(hours) == 1:
        return dg.RunRequest(run_key=run_key, partition_key=first)
    return dg.RunRequest(run_key=run_key, tags=range_tags(first, last))


def _report(hour: datetime, *, grown: bool) -> dg.AssetObservation:
    then = (
        "It has only grown, or was not all read: the hour is read again."
        if grown
        else "Launch bronze/visits for the hour to take it in."
    )
    return dg.AssetObservation(
        LANDED_VISITS,
        partition=_key(hour),
        description=f"The folder changed after it was closed and read. {then}",
        metadata={"changed_after_close": True, "read_again": grown},
    )


def _key(hour: datetime) -> str:
    return hour.strftime(hourly.fmt)


def _of_calendar(hours: Collection[datetime]) -> list[datetime]:
    """Those of these hours that the calendar has, by now."""
    bounds = hours_of_calendar()
    return [hour for hour in hours if bounds[0] <= hour <= bounds[1]] if bounds else []
