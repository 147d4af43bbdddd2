"""Records as text: an hour's delivery in chunks of JSON lines, the damaged ones damaged."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from de_assets.sources.simulator.content import ADS, PAGES, REFERRALS
from de_assets.sources.simulator.defects import Damage, Delivery, deliver
from de_assets.sources.simulator.devices import bot_context, technical_contexts
from de_assets.sources.simulator.irregularities import Irregularities
from de_assets.sources.simulator.population import population
from de_assets.sources.simulator.randomness import Int64s
from de_assets.sources.simulator.visits import draw_visits
from de_assets.sources.simulator.world import World

_CHUNK = 50_000
_BOTS_AMONG_GUESTS = 40
_PRIVATE = ("false", "true")


class Line(NamedTuple):
    """One line without its end, and the visit id that it shows (None where it has none)."""

    visit_id: str | None
    text: str

    @property
    def payload(self) -> bytes:
        """The bytes that leave the producer; not UTF-8 in a line with that damage."""
        return self.text.encode("utf-8", "surrogateescape")


def delivered(world: World, hour: datetime, visits: int, irregularities: Irregularities) -> Delivery:
    """All that arrives in an hour, with its truth; a silent hour has no visits. Independent of any other hour."""
    count = 0 if irregularities.is_silent(hour) else visits
    return deliver(world, hour, draw_visits(world, hour, count), irregularities)


def chunks(world: World, delivery: Delivery) -> Iterator[list[Line]]:
    """The lines of a delivery in order of arrival, at most 50,000 at a time, so that an hour's text is never held."""
    for begin in range(0, len(delivery.arrival), _CHUNK):
        rows = delivery.arrival[begin : begin + _CHUNK]
        lines = list(map(Line, delivery.columns.visit_ids(rows), _texts(world, delivery, rows)))
        for index, row in enumerate(rows.tolist()):
            if row in delivery.damages:
                lines[index] = _damaged(lines[index], delivery.damages[row])
        yield lines


def _texts(world: World, delivery: Delivery, rows: Int64s) -> list[str]:
    columns, people = delivery.columns, population(world)
    appearances = delivery.appearances[rows]
    times = np.datetime_as_string(columns.event_ms[rows].astype("datetime64[ms]"), unit="ms")
    origins, technical = _origins(), [*technical_contexts(), bot_context()]
    parts = zip(
        columns.keys[rows].tolist(),
        times.tolist(),
        appearances.tolist(),
        columns.private[rows].tolist(),
        columns.pages[rows].tolist(),
        columns.origins[rows].tolist(),
        _technical(appearances - people.first_guest, columns.devices[rows]).tolist(),
        strict=True,
    )
    texts = [
        f'{{"visit_id":"{key:016x}","event_time":"{time}+00:00","user_id":"{people.ids[who]}",'
        f'"keep_private":{_PRIVATE[private]},"page":"{PAGES[page]}","context":{{{origins[origin]},'
        f'"user":{people.contexts[who]},"technical":{technical[device]}}}}}'
        for key, time, who, private, page, origin, device in parts
    ]
    for field, carriers in delivery.further_fields.items():
        for index in np.flatnonzero(carriers[rows]).tolist():
            texts[index] = f'{texts[index][:-1]},"{field}":{rows[index] % 300}}}'
    return texts


def _technical(guests: Int64s, devices: Int64s) -> Int64s:
    """Index of the technical context; one guest in forty is a robot (users have negative numbers here)."""
    people = len(technical_contexts())
    return np.where((guests > 0) & (guests % _BOTS_AMONG_GUESTS == 0), people, devices % people)


@lru_cache(maxsize=1)
def _origins() -> list[str]:
    """JSON of referral and advertisement, by `VisitColumns.origins`."""
    return [f'"referral":{json.dumps(referral)},"ad_id":{json.dumps(ad)}' for referral in REFERRALS for ad in ADS]


def _damaged(line: Line, damage: Damage) -> Line:
    """Apply one kind of `MALFORMED` or `MISSING`."""
    if damage.detail == "truncated_json":
        return line._replace(text=line.text[: 1 + int(damage.chance * (len(line.text) - 1))])
    if damage.detail == "invalid_utf8":
        return line._replace(text=line.text.replace('"page":"', '"page":"\udcff\udcfe', 1))
    if damage.detail == "not_json":
        return line._replace(text="<html><body><h1>502 Bad Gateway</h1></body></html>")
    record = json.loads(line.text)
    if damage.detail == "wrong_type":
        record["context" if damage.chance < 0.5 else "keep_private"] = "unknown"
        return line._replace(text=json.dumps(record, separators=(",", ":")))
    field, form = damage.detail.split(":")
    record.pop(field)
    if form == "null":
        record[field] = None
    return Line(record.get("visit_id"), json.dumps(record, separators=(",", ":")))
