"""The sensor `waiting_partitions`: a day that waits says on its own page in the UI which hours it waits for, and why.

Pattern: Aligned Fan-In. The evaluations of a condition say that something is missing, by count; here a partition that reads
several of another asset gets an observation that names them, down to the first cause. Nothing is requested, no table is read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import sha256

import dagster as dg

from de_assets.dataset import pattern_tags
from de_assets.filling.waits import Cause, Reason, Waits

NEWEST = 7
"""So many partitions of an asset are told: what waits for longer is in `de waits`."""
WAITS_FOR, MISSING = "waits/for", "waits/missing"
"""Metadata of the observation: the causes, and how many partitions are missing or held."""
UNCHANGED = "Nothing has happened since the last look."
_PASSING = {Reason.READY, Reason.RUNNING}


def waiting(locations: Callable[[], Iterable[dg.Definitions]], *, seconds: int = 60) -> dg.SensorDefinition:
    """A sensor over the fan-ins of these locations, which are loaded at the first tick.

    What two ticks in a row have found is told, once until it changes: what is being computed, or about to be, is not. Cursor:
    the newest event that was looked at, and what was found of each partition.
    """

    @dg.sensor(
        name="waiting_partitions",
        description="Names the hours that a day waits for, on the day's own page.",
        minimum_interval_seconds=seconds,
        default_status=dg.DefaultSensorStatus.RUNNING,
        tags=pattern_tags("aligned_fan_in"),
    )
    def waiting_partitions(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        newest = context.instance.event_log_storage.get_maximum_record_id()
        before = json.loads(context.cursor or '{"event": null, "found": {}}')
        if before["event"] == newest and all(told for _, told in before["found"].values()):
            return dg.SkipReason(UNCHANGED)
        found, events = {}, []
        for asset, key, causes in held(Waits(context.instance, locations())):
            name, digest = f"{asset} {key}", _digest(causes)
            known, told = before["found"].get(name, ("", False))
            if known == digest and not told:
                events.append(observation(asset, key, causes))
            found[name] = [digest, known == digest]
        cursor = json.dumps({"event": newest, "found": found}, sort_keys=True)
        return dg.SensorResult(asset_events=events, cursor=cursor)

    return waiting_partitions


def held(waits: Waits) -> Iterator[tuple[str, str, list[Cause]]]:
    """The newest partitions that are over and not there, with the causes that do not pass by themselves."""
    for asset in waits.fan_ins():
        for key in waits.open(asset)[-NEWEST:]:
            causes = [cause for cause in waits.causes(asset, key) if cause.reason not in _PASSING]
            if causes:
                yield asset, key, causes


def observation(asset: str, key: str, causes: Sequence[Cause]) -> dg.AssetObservation:
    """What is told of one partition."""
    lines = [f"{cause.asset} {cause.shown()}: {cause.why}" for cause in causes]
    return dg.AssetObservation(
        asset.split("/"),
        partition=key,
        description=f"Waits for {lines[0]}",
        metadata={
            WAITS_FOR: dg.MetadataValue.md("\n".join(f"- {line}" for line in lines)),
            MISSING: sum(len(cause.keys) for cause in causes),
        },
    )


def _digest(causes: Sequence[Cause]) -> str:
    return sha256(repr(causes).encode()).hexdigest()[:16]
