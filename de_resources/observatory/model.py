"""What the observatory shows, as plain values. Nothing here holds a row of data: names, times, counts, verdicts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

Figures = Mapping[str, float]
"""Numbers by their name, such as `dagster/row_count`. None of them is of a personal column."""


class HealthVerdict(StrEnum):
    """How something is; the worst first. Each has a sign of its own, for colour alone tells nothing to many."""

    FAILED = "failed"
    WARNED = "warned"
    MISSING = "missing"
    WRITTEN = "written"
    PASSED = "passed"
    OUTSIDE = "outside"
    """Kept by somebody else: nothing is written here, and so nothing is missing."""

    @property
    def rank(self) -> int:
        """0 is the worst."""
        return _RANKS[self]


_RANKS = {verdict: rank for rank, verdict in enumerate(HealthVerdict)}


@dataclass(frozen=True)
class ObservedPartition:
    """One partition; `start` is in UTC, and None where the partition is no time."""

    key: str
    start: datetime | None = None


@dataclass(frozen=True, order=True)
class ColumnRef:
    """A column of a dataset, or, with an empty name, the dataset as a whole."""

    dataset: str
    column: str = ""


@dataclass(frozen=True)
class ObservedColumn:
    """A column as it is declared, and the columns that its values come from, as the newest write has recorded them."""

    name: str
    type: str = ""
    description: str = ""
    personal: bool = False
    sources: tuple[ColumnRef, ...] = ()


@dataclass(frozen=True)
class Write:
    """A materialisation (or an observation) and its numbers. `id` only grows, also where a clock was set back."""

    id: int
    at: datetime
    partition: str | None
    run: str
    figures: Figures = field(default_factory=dict)


@dataclass(frozen=True)
class Failure:
    """An attempt to write that failed. `id` is comparable with that of a write."""

    id: int
    at: datetime | None
    partition: str | None
    run: str


@dataclass(frozen=True)
class Evaluation:
    """One verdict of a check. `judged` is the id of the write that it judged, where that is known."""

    id: int
    at: datetime
    partition: str | None
    passed: bool
    severe: bool
    said: str = ""
    judged: int | None = None
    figures: Figures = field(default_factory=dict)

    @property
    def verdict(self) -> HealthVerdict:
        """Passed, warned or failed."""
        return HealthVerdict.PASSED if self.passed else HealthVerdict.FAILED if self.severe else HealthVerdict.WARNED


@dataclass(frozen=True)
class Check:
    """A check and its evaluations, the newest first. `by_partition`: it judges each partition by itself."""

    name: str
    description: str = ""
    blocking: bool = False
    by_partition: bool = False
    patterns: tuple[str, ...] = ()
    evaluations: tuple[Evaluation, ...] = ()


@dataclass(frozen=True)
class ObservedDataset:
    """An asset: what its definition says, and what the instance remembers of it.

    `writes` and `failures` are of the time that is looked at, the newest first; `materialized` are the partitions that were
    ever written. `declared` is False where the definitions do not have the asset any more.
    """

    name: str
    description: str = ""
    group: str = ""
    owners: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    upstream: tuple[str, ...] = ()
    partitions: tuple[ObservedPartition, ...] | None = None
    columns: tuple[ObservedColumn, ...] = ()
    checks: tuple[Check, ...] = ()
    writes: tuple[Write, ...] = ()
    observations: tuple[Write, ...] = ()
    failures: tuple[Failure, ...] = ()
    materialized: frozenset[str] = frozenset()
    freshness: str = ""
    """State of its freshness policy, as the daemon has judged it last: `PASS`, `WARN`, `FAIL`, `UNKNOWN`; empty: none."""
    promise: str = ""
    """Its freshness policy, for people."""
    external: bool = False
    declared: bool = True
    lineage_incomplete: bool = False


@dataclass(frozen=True)
class News:
    """An open alert that is no verdict of a check: a service that died, a run that hangs."""

    said: str
    severe: bool = True
    since: datetime | None = None
    datasets: tuple[str, ...] = ()


@dataclass(frozen=True)
class ObservedWorld:
    """All datasets at a moment. `unreadable` are code locations, or datasets, of which not everything could be read."""

    at: datetime
    datasets: Mapping[str, ObservedDataset]
    news: tuple[News, ...] = ()
    unreadable: tuple[str, ...] = ()
