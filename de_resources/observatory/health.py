"""How a dataset is, from what was read about it. Pure.

A verdict of a check counts for the write that it judged, by the order in which both were stored and not by any clock. What was
written after it has not been judged yet, and is not called good.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from de_resources.observatory.model import (
    Check,
    Evaluation,
    HealthVerdict,
    ObservedDataset,
    ObservedPartition,
    ObservedWorld,
    Write,
)

ROWS = ("dagster/partition_row_count", "dagster/row_count")
RECENT = timedelta(days=30)


@dataclass(frozen=True)
class Cell:
    """One partition of the calendar."""

    partition: ObservedPartition
    verdict: HealthVerdict
    said: str


@dataclass(frozen=True)
class Problem:
    """What is open now, on one dataset: a check that has not passed since, or a run that has failed and wrote nothing since."""

    dataset: str
    verdict: HealthVerdict
    what: str
    said: str = ""
    partitions: tuple[str, ...] = ()
    since: datetime | None = None


@dataclass(frozen=True)
class Health:
    """A dataset in one word and one sentence."""

    verdict: HealthVerdict
    said: str


@dataclass(frozen=True)
class Rate:
    """How many of the evaluations passed."""

    passed: int
    total: int

    @property
    def share(self) -> float | None:
        """None where there was none."""
        return self.passed / self.total if self.total else None

    def __add__(self, other: Rate) -> Rate:
        return Rate(self.passed + other.passed, self.total + other.total)


def newest_writes(dataset: ObservedDataset) -> dict[str | None, Write]:
    """The newest write of each partition."""
    found: dict[str | None, Write] = {}
    for write in dataset.writes:
        found.setdefault(write.partition, write)
    return found


def newest_evaluations(check: Check) -> dict[str | None, Evaluation]:
    """The newest verdict on each partition, or on the whole."""
    found: dict[str | None, Evaluation] = {}
    for evaluation in check.evaluations:
        found.setdefault(evaluation.partition, evaluation)
    return found


def cells(dataset: ObservedDataset) -> tuple[Cell, ...]:
    """A verdict for each partition, in the order of the partitions; nothing for a dataset without."""
    if dataset.partitions is None:
        return ()
    writes = newest_writes(dataset)
    failed = {failure.partition for failure in dataset.failures}
    judged = {check.name: newest_evaluations(check) for check in dataset.checks if check.by_partition}
    return tuple(_cell(dataset, each, writes.get(each.key), failed, judged) for each in dataset.partitions)


def _cell(
    dataset: ObservedDataset,
    partition: ObservedPartition,
    write: Write | None,
    failed: set[str | None],
    judged: Mapping[str, Mapping[str | None, Evaluation]],
) -> Cell:
    key = partition.key
    if key in failed:
        return Cell(partition, HealthVerdict.FAILED, "its last run failed")
    if write is None and key not in dataset.materialized:
        if dataset.external:
            return Cell(partition, HealthVerdict.OUTSIDE, "kept outside")
        return Cell(partition, HealthVerdict.MISSING, "nobody has written it")
    found = {name: own[key] for name, own in judged.items() if key in own and is_current(own[key], write)}
    bad = {name: evaluation for name, evaluation in found.items() if not evaluation.passed}
    if bad:
        worst = min((evaluation.verdict for evaluation in bad.values()), key=lambda verdict: verdict.rank)
        return Cell(partition, worst, ", ".join(sorted(bad)))
    if not found:
        older = write is None
        return Cell(
            partition, HealthVerdict.WRITTEN, "written before all that is read" if older else "written, not judged"
        )
    return Cell(partition, HealthVerdict.PASSED, f"{len(found)} of {len(judged)} checks passed, none failed")


def is_current(evaluation: Evaluation, write: Write | None) -> bool:
    """Whether nothing was written since the verdict."""
    return write is None or evaluation.judged is None or evaluation.judged >= write.id


def problems(dataset: ObservedDataset) -> tuple[Problem, ...]:
    """What is open, the worst first."""
    found = [*_failed_checks(dataset), *_failed_runs(dataset), *_stale(dataset)]
    return tuple(sorted(found, key=lambda problem: (problem.verdict.rank, problem.what)))


def _failed_checks(dataset: ObservedDataset) -> Iterable[Problem]:
    writes = newest_writes(dataset)
    for check in dataset.checks:
        open_ = [
            evaluation
            for key, evaluation in newest_evaluations(check).items()
            if not evaluation.passed and (key is None or is_current(evaluation, writes.get(key)))
        ]
        for verdict in (HealthVerdict.FAILED, HealthVerdict.WARNED):
            own = [evaluation for evaluation in open_ if evaluation.verdict is verdict]
            if own:
                yield Problem(
                    dataset.name,
                    verdict,
                    check.name,
                    own[0].said,
                    tuple(sorted(e.partition for e in own if e.partition is not None)),
                    min(evaluation.at for evaluation in own),
                )


def _failed_runs(dataset: ObservedDataset) -> Iterable[Problem]:
    if dataset.failures:
        since = [failure.at for failure in dataset.failures if failure.at is not None]
        keys = tuple(sorted(f.partition for f in dataset.failures if f.partition is not None))
        said = "Its last run failed, and nothing was written since."
        yield Problem(dataset.name, HealthVerdict.FAILED, "run failed", said, keys, min(since, default=None))


def _stale(dataset: ObservedDataset) -> Iterable[Problem]:
    verdict = {"FAIL": HealthVerdict.FAILED, "WARN": HealthVerdict.WARNED}.get(dataset.freshness)
    if verdict is not None:
        yield Problem(dataset.name, verdict, "freshness policy", f"Promised: {dataset.promise}.")


def health(dataset: ObservedDataset) -> Health:
    """The worst of what is open; else whether it was written and judged at all."""
    open_ = problems(dataset)
    if open_:
        more = f", and {len(open_) - 1} more" if len(open_) > 1 else ""
        return Health(open_[0].verdict, f"{open_[0].what}{more}")
    if not dataset.writes and not dataset.materialized:
        if dataset.external:
            return Health(HealthVerdict.OUTSIDE, "kept outside, and not written here")
        return Health(HealthVerdict.MISSING, "never written")
    if not any(check.evaluations for check in dataset.checks):
        return Health(HealthVerdict.WRITTEN, "written; no check has judged it")
    return Health(HealthVerdict.PASSED, "no check is red, no run is open")


def rate(check: Check, since: datetime | None = None) -> Rate:
    """The hit rate of a check, of all that was read or since a moment."""
    counted = [e for e in check.evaluations if since is None or e.at >= since]
    return Rate(sum(e.passed for e in counted), len(counted))


def promises(world: ObservedWorld, pattern: str) -> list[tuple[ObservedDataset, Check, Rate, Rate]]:
    """The checks that carry a pattern, with their rate of the last days and of all; the worst first."""
    recent = world.at - RECENT
    found = [
        (dataset, check, rate(check, recent), rate(check))
        for dataset in world.datasets.values()
        for check in dataset.checks
        if pattern in check.patterns
    ]
    return sorted(found, key=lambda each: (each[3].share if each[3].share is not None else 2, each[0].name))


def rows(dataset: ObservedDataset) -> int | None:
    """How many rows there are, as the newest writes have told; None where none did."""
    newest = newest_writes(dataset)
    if any(ROWS[0] in write.figures for write in newest.values()):
        return int(sum(write.figures.get(ROWS[0], 0) for write in newest.values()))
    told = [write.figures[ROWS[1]] for write in dataset.writes if ROWS[1] in write.figures]
    return int(told[0]) if told else None


def newest_sum(dataset: ObservedDataset, figure: str) -> float | None:
    """A figure over all partitions, by the newest write of each; None where none of them has it."""
    values = [write.figures[figure] for write in newest_writes(dataset).values() if figure in write.figures]
    return sum(values) if values else None


def checks_now(dataset: ObservedDataset) -> Rate:
    """How many checks have nothing open, of those that ever judged."""
    ran = [check for check in dataset.checks if check.evaluations]
    red = {problem.what for problem in _failed_checks(dataset)}
    return Rate(sum(check.name not in red for check in ran), len(ran))


def worst(verdicts: Sequence[HealthVerdict]) -> HealthVerdict:
    """The worst of some."""
    return min(verdicts, key=lambda verdict: verdict.rank)
