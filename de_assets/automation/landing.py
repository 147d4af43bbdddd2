"""Readiness Marker: an hour of landed visits is requested when it is complete, by its marker or by its successor.

The instance, not the sensor, remembers what was requested: an hour is free as long as no run has materialised it or
plans to. So an hour is requested once even when the sensor restarts, loses its cursor, or somebody launches the hour by
hand. A failed hour is for people (see the sensor `alerts`), unless its producer lands it anew.

The cursor remembers how each closed folder looked. One that looks different later is reported, as an observation of
`sources/landed_visits` and in the tick's log, and not read again: that would change published numbers silently.

Contiguous free hours become one run. The tables take a range in one commit, so that catching up with three days costs
one engine session and not seventy-two; in steady operation there is one free hour, hence one run for it.
"""

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import dagster as dg

from de_assets.dataset import pattern_tags
from de_assets.partitions import CALENDAR, hourly
from de_assets.ranges import contiguous, range_tags
from de_assets.sources.landing import MARKER, data_files, hour_folder
from de_assets.sources.landing_zone import LandingZone
from de_assets.sources.systems import LANDED_VISITS

VISITS = dg.AssetKey(["bronze", "visits"])
DEAD_LETTERS = dg.AssetKey(["bronze", "visits_dead_letter"])

HOURS_PER_RUN = 7 * 24
RUNS_PER_TICK = 4
WATCHED_HOURS = 31 * 24
"""Closed folders that are watched for changes, newest first; it bounds the cursor."""


@dataclass(frozen=True)
class Plan:
    """What one tick does: ranges to request, closed hours to report, and the looks to remember for the next tick."""

    ranges: list[list[datetime]]
    changed: list[datetime]
    seen: dict[datetime, str]


@dg.sensor(
    name="visits_hour_landed",
    description="Requests an hour of landed visits when it is complete; reports folders that change later.",
    target=dg.AssetSelection.assets(VISITS, DEAD_LETTERS),
    minimum_interval_seconds=30,
    default_status=dg.DefaultSensorStatus.RUNNING,
    tags=pattern_tags("readiness_marker"),
)
def visits_hour_landed(context: dg.SensorEvaluationContext, landing: LandingZone) -> dg.SensorResult:
    """Request the closed hours that no run has taken. Starts no engine."""
    closed, marked = landing.closed_hours(), landing.readiness == "marker"
    known = _partitions(closed)
    looks = {
        hour: look
        for hour in closed
        if _key(hour) in known and (look := look_of(landing.path, hour, with_marker=marked)) is not None
    }
    seen = {datetime.fromisoformat(hour): look for hour, look in json.loads(context.cursor or "{}").items()}
    plan = make_plan(looks, seen, *_taken(context.instance, looks))
    for hour in plan.changed:
        context.log.warning("The folder of %s changed after it was read. It is not read again by itself.", _key(hour))
    outside = len(closed) - len(looks)
    return dg.SensorResult(
        run_requests=[_request(hours, plan.seen) for hours in plan.ranges],
        asset_events=[_report(hour) for hour in plan.changed],
        cursor=json.dumps({hour.isoformat(): look for hour, look in sorted(plan.seen.items())}),
        skip_reason=None
        if plan.ranges or plan.changed
        else f"{len(looks)} complete hours, all taken; {outside} outside the calendar {CALENDAR} or being rewritten.",
    )


def look_of(landing: Path, hour: datetime, *, with_marker: bool = True) -> str | None:
    """A fingerprint of the hour's folder as it was closed: names, sizes and times. None while it is being rewritten."""
    folder = hour_folder(landing, hour)
    covered = [*data_files(folder), folder / MARKER] if with_marker else data_files(folder)
    try:
        facts = [(path.name, stat.st_size, stat.st_mtime_ns) for path in covered for stat in (path.stat(),)]
    except FileNotFoundError:
        return None
    return hashlib.blake2b(repr(facts).encode(), digest_size=6).hexdigest()


def make_plan(
    looks: Mapping[datetime, str],
    seen: Mapping[datetime, str],
    read: Collection[datetime],
    running: Collection[datetime],
    failed: Collection[datetime],
) -> Plan:
    """Decide about complete hours.

    `looks` are today's fingerprints and `seen` those that were requested or reported, `read` the hours that a run has
    materialised, `running` those that one is about to, `failed` those that were tried and never read. What changes while
    its run is under way is reported when that run has read it, and requested again when it has failed.
    """
    # What failed and was landed anew since is another folder, which nobody has read.
    tried = {hour for hour in failed if seen.get(hour) in (None, looks[hour])}
    free = [hour for hour in sorted(looks) if hour not in {*read, *running, *tried}]
    ranges = contiguous(free, timedelta(hours=1), at_most=HOURS_PER_RUN)[:RUNS_PER_TICK]
    requested = {hour for hours in ranges for hour in hours}
    changed = [hour for hour in sorted(read) if seen.get(hour, looks[hour]) != looks[hour]]
    known = {
        **{hour: looks[hour] for hour in running},
        **seen,
        **{hour: looks[hour] for hour in (*read, *tried, *requested)},
    }
    return Plan(ranges, changed, dict(sorted(known.items())[-WATCHED_HOURS:]))


def _taken(
    instance: dg.DagsterInstance, hours: Collection[datetime]
) -> tuple[set[datetime], set[datetime], set[datetime]]:
    """Of these hours, those that were read, that are being read for the first time, and that failed before they were."""
    materialised = instance.get_materialized_partitions(VISITS)
    status = instance.get_status_by_partition(VISITS, [_key(hour) for hour in hours], hourly) or {}
    read = {h for h in hours if _key(h) in materialised}
    running = {h for h in hours if status.get(_key(h)) == dg.AssetPartitionStatus.IN_PROGRESS}
    failed = {h for h in hours if status.get(_key(h)) == dg.AssetPartitionStatus.FAILED}
    return read, running - read, failed - read


def _request(hours: list[datetime], looks: Mapping[datetime, str]) -> dg.RunRequest:
    first, last = _key(hours[0]), _key(hours[-1])
    identity = hashlib.blake2b("".join(looks[hour] for hour in hours).encode(), digest_size=6).hexdigest()
    run_key = f"{first}..{last}@{identity}"
    if len(hours) == 1:
        return dg.RunRequest(run_key=run_key, partition_key=first)
    return dg.RunRequest(run_key=run_key, tags=range_tags(first, last))


def _report(hour: datetime) -> dg.AssetObservation:
    return dg.AssetObservation(
        LANDED_VISITS,
        partition=_key(hour),
        description="The folder changed after it was closed and read. Launch bronze/visits for the hour to take it in.",
        metadata={"changed_after_close": True},
    )


def _key(hour: datetime) -> str:
    return hour.strftime(hourly.fmt)


def _partitions(hours: list[datetime]) -> set[str]:
    """The keys among these hours that the calendar has, by now."""
    return {key for key in map(_key, hours) if hourly.has_partition_key(key)}
