"""Replay of dead letters: decisions are landed, their hours run through the normal path, and what is stale is named.

Pattern *Dead-Letter*. Nothing is written to a table here: the hour's own run reads what was landed, so that a replay that
dies half-way is finished by the next one, or by any other run of the hour.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import dagster as dg

from de_assets.dead_letters.letters import DecidedLetters
from de_assets.filling import UnitOutcome, run_keys, units
from de_assets.partitions import CALENDAR, hourly
from de_assets.ranges import key_ranges
from de_assets.sources.decisions import decided_at, land
from de_checks.per_key import latest_materializations
from de_resources.downstream import stale_downstream
from de_resources.errors import PermanentError

VISITS = dg.AssetKey(["bronze", "visits"])
DEAD_LETTERS = dg.AssetKey(["bronze", "visits_dead_letter"])
REPLAYED = (VISITS, DEAD_LETTERS)


class OutsideCalendar(PermanentError):
    """Letters of hours that the calendar in force does not have."""

    def __init__(self, hours: Sequence[datetime]) -> None:
        self.hours = tuple(hours)
        super().__init__(
            f"{len(hours)} hour(s) of these letters, from {hours[0]:%Y-%m-%dT%H}, are outside the calendar {CALENDAR}. "
            "Nothing was decided. Set DE_CALENDAR so that it covers them."
        )


def land_all(landing: Path, plan: DecidedLetters) -> None:
    """Land what is decided, hour by hour; what is there already is no change. Raises `OutsideCalendar` before the first."""
    outside = [hour for hour in sorted({*plan.hours, *plan.due}) if not hourly.has_partition_key(_key(hour))]
    if outside:
        raise OutsideCalendar(outside)
    for hour, decisions in sorted(plan.hours.items()):
        land(landing, hour, decisions)


def unread_hours(instance: dg.DagsterInstance, landing: Path, plan: DecidedLetters) -> list[datetime]:
    """The plan's hours that are due, or of which one of the two tables was last written by a run that began before the
    newest decision was landed."""
    hours = {*plan.concerned, *plan.due}
    keys = [_key(hour) for hour in sorted(hours)]
    begun = [_begun(instance, asset, keys) for asset in REPLAYED]

    def has_read(hour: datetime) -> bool:
        newest = decided_at(landing, hour)
        return newest is None or all(started.get(_key(hour), 0.0) > newest for started in begun)

    return sorted(hour for hour in hours if hour in plan.due or not has_read(hour))


def _begun(instance: dg.DagsterInstance, asset: dg.AssetKey, keys: Sequence[str]) -> dict[str, float]:
    """When the runs began that wrote these partitions last."""
    written = latest_materializations(instance, asset, keys) if keys else {}
    started: dict[str, float] = {}
    for run in {found.run_id for found in written.values()}:
        record = instance.get_run_record_by_id(run)
        started[run] = (record.start_time or 0.0) if record else 0.0
    return {str(key): started[found.run_id] for key, found in written.items()}


def run_hours(instance: dg.DagsterInstance, hours: Sequence[datetime]) -> UnitOutcome:
    """Run the two tables of landed visits for these hours, each contiguous range in one run."""
    from de_assets.definitions import defs

    unit = next(unit for unit in units([defs]) if VISITS in unit.assets)
    outcome = UnitOutcome(unit)
    for selection in key_ranges(hourly.get_partition_keys(), {_key(hour) for hour in hours}):
        run_keys(instance, unit, selection, outcome)
    return outcome


def stale(instance: dg.DagsterInstance, hours: Sequence[datetime]) -> dict[str, set[str] | None]:
    """What was computed from these hours before, by asset, in the order in which it is to be computed again."""
    from de_assets.definitions import defs

    found = stale_downstream(defs.resolve_asset_graph(), instance, VISITS, [_key(hour) for hour in hours])
    return {asset.to_user_string(): keys for asset, keys in found.items()}


def _key(hour: datetime) -> str:
    return hour.strftime(hourly.fmt)
