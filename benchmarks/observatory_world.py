"""Worlds for the observatory to show: pieces for small ones, and one of hundreds of datasets with a year of history."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cache
from math import sin

from de_resources.observatory.model import (
    Check,
    ColumnRef,
    Evaluation,
    Failure,
    ObservedColumn,
    ObservedDataset,
    ObservedPartition,
    ObservedWorld,
    Write,
)

NOW = datetime(2024, 12, 31, 12, tzinfo=UTC)
DAY = timedelta(days=1)
YEAR = 366
SUBJECTS = [
    "orders",
    "visits",
    "users",
    "payments",
    "shipments",
    "devices",
    "sessions",
    "returns",
    "invoices",
    "campaigns",
    "searches",
    "ratings",
    "prices",
    "stocks",
    "carts",
]
COLUMNS = [
    "id",
    "happened_at",
    "user_id",
    "amount",
    "currency",
    "country",
    "page",
    "referral",
    "device",
    "browser",
    "channel",
    "price",
    "discount",
    "tax",
    "status",
    "reason",
    "first_seen",
    "last_seen",
    "hour",
    "is_test",
]


def days(count: int, last: datetime = NOW) -> tuple[ObservedPartition, ...]:
    """Daily partitions that end before `last`."""
    first = last.replace(hour=0) - DAY * count
    return tuple(ObservedPartition(f"{first + DAY * n:%Y-%m-%d}", first + DAY * n) for n in range(count))


def hours(count: int, last: datetime = NOW) -> tuple[ObservedPartition, ...]:
    """Hourly partitions that end before `last`."""
    first = last - timedelta(hours=count)
    moments = [first + timedelta(hours=n) for n in range(count)]
    return tuple(ObservedPartition(f"{at:%Y-%m-%d-%H:00}", at) for at in moments)


def written(partitions: tuple[ObservedPartition, ...], rows: int = 100) -> tuple[Write, ...]:
    """One write for each partition, the newest first; ids from 1."""
    apart = (partitions[1].start or NOW) - (partitions[0].start or NOW) if len(partitions) > 1 else DAY
    made = [
        Write(n + 1, (p.start or NOW) + apart, p.key, f"run-{n}", {"dagster/partition_row_count": rows + n % 7})
        for n, p in enumerate(partitions)
    ]
    return tuple(reversed(made))


def judged(writes: tuple[Write, ...], bad: dict[str, bool] | None = None, **figures: float) -> tuple[Evaluation, ...]:
    """One verdict for each write. `bad` names the partitions that fail, and whether that is severe."""
    bad = bad or {}
    return tuple(
        Evaluation(
            id=write.id,
            at=write.at,
            partition=write.partition,
            passed=write.partition not in bad,
            severe=bad.get(write.partition or "", True),
            said="2 of 100 rows are wrong." if write.partition in bad else "",
            judged=write.id,
            figures=figures,
        )
        for write in writes
    )


def large(datasets: int = 300, columns: int = 20, hourly: int = 6) -> ObservedWorld:
    """Datasets in four layers, each built on one of the layer above; a year of days each, and of hours for some."""
    found: dict[str, ObservedDataset] = {}
    layers = ("bronze", "silver", "gold", "serving")
    each = datasets // len(layers)
    for layer, group in enumerate(layers):
        for n in range(each):
            dataset = _dataset(layer, group, n, columns, by_hour=n < hourly and layer < 2)
            found[dataset.name] = dataset
    return ObservedWorld(NOW, found)


@cache
def _year(*, by_hour: bool) -> tuple[tuple[ObservedPartition, ...], tuple[Write, ...]]:
    """What is the same in all datasets is made once: the partitions, and a write for each."""
    partitions = hours(YEAR * 24) if by_hour else days(YEAR)
    return partitions, written(partitions)


@cache
def _good(*, by_hour: bool) -> tuple[Evaluation, ...]:
    return judged(_year(by_hour=by_hour)[1])


def _late(verdicts: tuple[Evaluation, ...]) -> tuple[Evaluation, ...]:
    return tuple(
        Evaluation(e.id, e.at, e.partition, e.passed, e.severe, e.said, e.judged, {"lag/seconds": (e.id * 41) % 600})
        for e in verdicts
    )


@cache
def _good_and_late(*, by_hour: bool) -> tuple[Evaluation, ...]:
    return _late(_good(by_hour=by_hour))


def _dataset(layer: int, group: str, n: int, columns: int, *, by_hour: bool) -> ObservedDataset:
    partitions, bare = _year(by_hour=by_hour)
    subject = f"{SUBJECTS[n % len(SUBJECTS)]}{f'_{n // len(SUBJECTS)}' if n >= len(SUBJECTS) else ''}"
    name = f"{group}/{subject}"
    parent = f"{('sources', 'bronze', 'silver', 'gold')[layer]}/{subject}" if layer else ""
    writes = tuple(
        Write(
            write.id,
            write.at,
            write.partition,
            write.run,
            {
                "dagster/partition_row_count": round(1000 + 400 * sin(write.id / 7) + (write.id * 37 + n) % 90),
                "duration_seconds": 3 + (write.id * 13 + n) % 17 / 10,
                "delta/bytes": 90_000 + (write.id * 7919 + n) % 9_000,
            },
        )
        for write in bare
    )
    odd_one = 2003 if by_hour else 211
    odd = {p.key: (k + n) % 2 == 0 for k, p in enumerate(partitions) if (k * 31 + n * 17) % odd_one == 0 and n % 9 == 0}
    good = _good(by_hour=by_hour)
    volume = judged(bare, odd) if odd else good
    lag = _late(volume) if odd else _good_and_late(by_hour=by_hour)
    checks = (
        Check("rows_meet_contract", "Every row keeps the contract.", True, True, (), good),
        Check("volume_is_stable", "As many rows as usual.", False, True, ("skew_detector",), volume),
        Check("readers_keep_up", "Nobody is far behind.", False, True, ("lag_detector",), lag),
    )
    return ObservedDataset(
        name,
        f"All {subject}, {group}. Grain: one row for each of them.",
        group,
        (f"team:{('web', 'accounts', 'analytics')[n % 3]}",),
        ("deltalake",),
        ("dead_letter",) if n % 40 == 0 else (),
        (parent,) if parent else (),
        partitions,
        tuple(
            ObservedColumn(c, "string", "What it is.", sources=(ColumnRef(parent, c),) if parent else ())
            for c in COLUMNS[:columns]
        ),
        checks,
        writes,
        failures=(Failure(10**6, NOW, partitions[-1].key, "run-x"),) if n % 37 == 3 else (),
        materialized=frozenset(p.key for p in partitions),
    )
