"""Injects irregularities into an hour: who gets which defect, in which order records arrive, and the truth of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import cycle, islice

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from de_assets.sources.landing import full_hour
from de_assets.sources.simulator.irregularities import Irregularities
from de_assets.sources.simulator.population import HOT_GUEST, milliseconds, population
from de_assets.sources.simulator.randomness import Int64s, generator
from de_assets.sources.simulator.truth import SCHEMA, Defect, HourTruth
from de_assets.sources.simulator.visits import HOUR_MS, SimulatedColumns
from de_assets.sources.simulator.world import World

MALFORMED = ("truncated_json", "invalid_utf8", "wrong_type", "not_json")
REQUIRED = ("visit_id", "user_id", "event_time", "page")
MISSING = tuple(f"{field}:{form}" for field in REQUIRED for form in ("null", "absent"))

_DAYS_AHEAD = 10


@dataclass(frozen=True)
class Damage:
    """What is to be done to a record's text. `chance` in [0, 1) chooses where."""

    detail: str
    chance: float


@dataclass(frozen=True)
class Delivery:
    """An hour as it arrives: rows of `columns` in `arrival` order (copies repeat a row), some of them damaged."""

    columns: SimulatedColumns
    arrival: Int64s
    appearances: Int64s
    """By row: who shows, see `Population`."""
    damages: dict[int, Damage]
    """By row."""
    further_fields: dict[str, npt.NDArray[np.bool_]]
    """Fields of later schema versions, and which rows carry them."""
    truth: HourTruth


class _Picker:
    """Hands out rows at random, each once."""

    def __init__(self, count: int, rng: np.random.Generator) -> None:
        self._count = count
        self._free = rng.permutation(count)

    def take(self, rate: float) -> Int64s:
        """`round(rate * n)` rows that nobody has, in ascending order."""
        return self.take_exactly(round(rate * self._count))

    def take_exactly(self, number: int) -> Int64s:
        taken, self._free = self._free[:number], self._free[number:]
        return np.sort(taken)


def deliver(world: World, hour: datetime, visits: SimulatedColumns, irregularities: Irregularities) -> Delivery:
    """Inject the irregularities; `visits` are changed in place. The result depends on the arguments only."""
    rng = generator(world.seed, "defects", full_hour(hour).isoformat())
    picker = _Picker(len(visits), rng)
    book = _Book(visits)
    _delay(visits, picker.take(irregularities.late), irregularities, rng, book)
    damages = _damage(picker, irregularities, rng, book)
    future = picker.take(irregularities.future)
    skewed = np.sort(rng.permutation(len(visits))[: round(irregularities.skew * len(visits))])
    arrival = _arrival(picker, irregularities, len(visits), rng, book)
    _own(world, visits, skewed, book)
    appearances = population(world).appearances(visits.persons, visits.guests, visits.event_ms)
    further_fields = _further_fields(visits, irregularities)
    book.whole_hour(Defect.SCHEMA, list(further_fields))
    _advance(visits, future, rng, book)
    if irregularities.is_silent(hour):
        book.whole_hour(Defect.SILENCE, [""])
    truth = book.close(full_hour(hour), arrival)
    return Delivery(visits, arrival, appearances, damages, further_fields, truth)


class _Book:
    """Keeps the truth by row and turns rows into positions at the end."""

    def __init__(self, visits: SimulatedColumns) -> None:
        self._visits = visits
        self._entries: list[tuple[int | None, str, str, bool]] = []

    def note(self, kind: str, rows: Int64s, details: Sequence[str], *, copies: bool = False) -> None:
        self._entries.extend((row, kind, detail, copies) for row, detail in zip(rows.tolist(), details, strict=True))

    def whole_hour(self, kind: str, details: Sequence[str]) -> None:
        self._entries.extend((None, kind, detail, False) for detail in details)

    def close(self, hour: datetime, arrival: Int64s) -> HourTruth:
        """The originals' positions are the first of their row, the copies' the last."""
        positions = np.arange(len(arrival))
        first, last = np.zeros(len(self._visits), np.int64), np.zeros(len(self._visits), np.int64)
        last[arrival] = positions
        first[arrival[::-1]] = positions[::-1]
        entries = [
            (None if row is None else int(last[row] if copies else first[row]), row, kind, detail)
            for row, kind, detail, copies in self._entries
        ]
        entries.sort(key=lambda entry: (-1 if entry[0] is None else entry[0], entry[2]))
        named = iter(self._visits.visit_ids(np.array([e[1] for e in entries if e[1] is not None], dtype=np.int64)))
        table = pa.table(
            {
                "position": [entry[0] for entry in entries],
                "visit_id": [None if entry[1] is None else next(named) for entry in entries],
                "kind": [entry[2] for entry in entries],
                "detail": [entry[3] for entry in entries],
            },
            schema=SCHEMA,
        )
        return HourTruth(hour, len(self._visits), len(arrival), table)


def _delay(
    visits: SimulatedColumns, rows: Int64s, wanted: Irregularities, rng: np.random.Generator, book: _Book
) -> None:
    """Move events to an earlier hour; they keep their place in this one."""
    delays, weights = np.array(wanted.late_delays).T
    hours = rng.choice(delays.astype(np.int64), size=len(rows), p=weights / weights.sum())
    visits.event_ms[rows] -= hours * HOUR_MS
    book.note(Defect.LATE, rows, [str(delay) for delay in hours.tolist()])


def _damage(picker: _Picker, wanted: Irregularities, rng: np.random.Generator, book: _Book) -> dict[int, Damage]:
    damages: dict[int, Damage] = {}
    for kind, rate, details in (
        (Defect.MALFORMED, wanted.malformed, MALFORMED),
        (Defect.MISSING, wanted.missing, MISSING),
    ):
        rows = picker.take(rate)
        chosen = rng.permutation(list(islice(cycle(details), len(rows)))).tolist()
        chances = rng.random(len(rows)).tolist()
        damages.update(zip(rows.tolist(), map(Damage, chosen, chances), strict=True))
        book.note(kind, rows, chosen)
    return damages


def _arrival(picker: _Picker, wanted: Irregularities, count: int, rng: np.random.Generator, book: _Book) -> Int64s:
    """The order of arrival: event time, but for displaced records and copies."""
    places = np.arange(count, dtype=np.float64)
    _displace(places, picker.take_exactly(2 * round(wanted.out_of_order * count)), rng, book)
    originals = picker.take(wanted.duplicates)
    later = rng.random(len(originals)) < 0.5
    copies = np.where(later, np.floor(rng.uniform(originals + 1, count)) + 0.5, originals + 0.1)
    book.note(Defect.DUPLICATE, originals, np.where(later, "later", "adjacent").tolist(), copies=True)
    rows = np.concatenate([np.arange(count, dtype=np.int64), originals])
    return rows[np.argsort(np.concatenate([places, copies]), kind="stable")]


def _displace(places: np.ndarray, rows: Int64s, rng: np.random.Generator, book: _Book) -> None:
    """Of each pair of neighbouring rows, let the earlier arrive behind the later, which itself stays in its place."""
    pairs = rows[: len(rows) // 2 * 2].reshape(-1, 2)
    places[pairs[:, 0]] = pairs[:, 1] + rng.uniform(0.2, 0.4, len(pairs))
    book.note(Defect.OUT_OF_ORDER, pairs[:, 0], [str(n) for n in (pairs[:, 1] - pairs[:, 0]).tolist()])


def _own(world: World, visits: SimulatedColumns, rows: Int64s, book: _Book) -> None:
    visits.persons[rows] = -1
    visits.guests[rows] = HOT_GUEST
    people = population(world)
    book.note(Defect.SKEWED, rows, [people.ids[people.first_guest + HOT_GUEST]] * len(rows))


def _advance(visits: SimulatedColumns, rows: Int64s, rng: np.random.Generator, book: _Book) -> None:
    days = rng.integers(1, _DAYS_AHEAD, size=len(rows), endpoint=True)
    visits.event_ms[rows] += days * 24 * HOUR_MS
    book.note(Defect.FUTURE, rows, [str(ahead) for ahead in days.tolist()])


def _further_fields(visits: SimulatedColumns, wanted: Irregularities) -> dict[str, npt.NDArray[np.bool_]]:
    """Fields that at least one visit carries. Comes before clocks are set ahead: producers follow the true time."""
    carriers = {change.field: visits.event_ms >= milliseconds(change.since) for change in wanted.schema_changes}
    return {name: rows for name, rows in carriers.items() if rows.any()}
