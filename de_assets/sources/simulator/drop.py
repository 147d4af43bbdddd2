"""Feeds the drop folder with the world's visits and devices. Pattern: Readiness Marker, the producer's side."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

from de_assets.sources.landing import DEVICES, PART, Progress, full_hour, hour_folder, incoming, publish, write_lines
from de_assets.sources.simulator.devices import devices
from de_assets.sources.simulator.hours import spread
from de_assets.sources.simulator.irregularities import NONE, Irregularities
from de_assets.sources.simulator.lines import chunks, delivered
from de_assets.sources.simulator.truth import Truth
from de_assets.sources.simulator.world import World

DEVICES_FILE = "devices.json"


@dataclass(frozen=True, slots=True)
class LandedHour:
    """One hour's folder. `changed` is False where the same bytes were there already."""

    hour: datetime
    visits: int
    lines: int
    bytes: int
    changed: bool


def land_visits(
    landing: Path,
    world: World,
    hours: Sequence[datetime],
    *,
    total: int | None = None,
    per_hour: int | None = None,
    irregularities: Irregularities = NONE,
    progress: Progress | None = None,
) -> list[LandedHour]:
    """Land visits and their truth, one folder per hour: `per_hour` in every hour, or `total` over all by `spread`.

    A silent hour gets a complete folder without files. Landing the same again touches nothing; other arguments
    replace the hours' folders and truth. An hour is a function of world, hour, its number of visits and the
    irregularities, whatever else is landed. Memory is bounded by the columns of one hour. `progress` counts hours.
    Raises ValueError unless exactly one of `total` and `per_hour` is given.
    """
    truth = Truth(landing)
    landed = []
    for done, (hour, visits) in enumerate(visits_per_hour(hours, total, per_hour, irregularities), start=1):
        landed.append(_land_hour(landing, world, hour, visits, irregularities, truth))
        if progress is not None:
            progress(done, len(hours))
    return landed


def visits_per_hour(
    hours: Sequence[datetime], total: int | None, per_hour: int | None, irregularities: Irregularities
) -> list[tuple[datetime, int]]:
    """Each hour with its number of visits; the silent ones have none, and a total is spread over the others."""
    if (total is None) == (per_hour is None):
        raise ValueError("Say how many visits: either `total` or `per_hour`.")
    full = [full_hour(hour) for hour in hours]
    loud = [hour for hour in full if not irregularities.is_silent(hour)]
    counts = dict(zip(loud, spread(total, loud) if total is not None else [per_hour or 0] * len(loud), strict=True))
    return [(hour, counts.get(hour, 0)) for hour in full]


def _land_hour(
    landing: Path, world: World, hour: datetime, visits: int, irregularities: Irregularities, truth: Truth
) -> LandedHour:
    delivery = delivered(world, hour, visits, irregularities)
    truth.record(delivery.truth)
    with incoming(landing) as folder:
        prepared, size = folder / PART, 0
        if delivery.truth.lines:
            payloads = ("\n".join([line.text for line in chunk]) + "\n" for chunk in chunks(world, delivery))
            size = write_lines(prepared, (payload.encode("utf-8", "surrogateescape") for payload in payloads))
        changed = publish(hour_folder(landing, hour), {PART: prepared} if size else {})
    return LandedHour(hour, delivery.truth.visits, delivery.truth.lines, size, changed)


def land_devices(landing: Path, world: World, at: datetime) -> bool:
    """Land the provider's complete dump as of a moment, as JSON lines; False when the same dump is there already."""
    with incoming(landing) as folder:
        prepared = folder / DEVICES_FILE
        write_lines(prepared, _device_lines(world, at))
        return publish(landing / DEVICES, {DEVICES_FILE: prepared})


def _device_lines(world: World, at: datetime) -> Iterator[bytes]:
    for device in devices(world, at):
        yield json.dumps(asdict(device)).encode() + b"\n"
