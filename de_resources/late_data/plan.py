"""What is to be done about each partition that changed after it was processed. Pure: no clock, no database, no Dagster.

A partition is *late* when its source changed in a version that the last run over it had not read. A partition that nobody
processed yet is not late, and one whose time is not over never selects itself, so that a run which writes the present cannot
start itself.

In a *stateful* dataset a partition is the outcome of all before it. There a late partition is followed by every one after
it, one at a time and in order: a partition is also to be run again when one before it was run later than it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from de_resources.delta.log.changed_partitions import PartitionChange


class LateVerdict(StrEnum):
    """What becomes of a partition."""

    UP_TO_DATE = "up to date"
    UNPROCESSED = "not processed yet"
    CURRENT = "its time is not over"
    REQUESTED = "requested"
    UNDER_WAY = "under way"
    SETTLING = "changed a moment ago"
    HELD_BACK = "held back by its source"
    AFTER_ANOTHER = "after the one before it"
    TOO_OLD = "too old"
    GIVEN_UP = "given up"


REFUSED = frozenset({LateVerdict.TOO_OLD, LateVerdict.GIVEN_UP})
"""Verdicts that stand until the partition changes again, or a person runs it."""

NEWS = frozenset({LateVerdict.REQUESTED, LateVerdict.HELD_BACK}) | REFUSED
"""Verdicts that people are told of, once for each change."""


@dataclass(frozen=True)
class ConsumerPartition:
    """What is known of one partition of a consumer; `end` is the end of its time.

    `processed_by` orders the runs over all partitions by when they ended; None: there was none. `processed_version` is
    the version of the source which that run had read, None where it did not say. `attempts` counts runs for `need`.
    """

    key: str
    end: datetime
    change: PartitionChange | None = None
    processed_version: int | None = None
    processed_by: int | None = None
    claim: str | None = None
    attempts: int = 0
    need: str = ""

    @property
    def is_late(self) -> bool:
        """Whether its source changed in a version that its last run had not read."""
        read = -1 if self.processed_version is None else self.processed_version
        return self.processed_by is not None and self.change is not None and self.change.version > read


@dataclass(frozen=True)
class Policy:
    """How late is too late, how long a change is left alone for others to join it, and how often a run may fail.

    `max_age` is for a dataset whose contract does not say it (`late_for`); None: nobody has said it.
    """

    max_age: timedelta | None = None
    settle: timedelta = timedelta(minutes=2)
    max_attempts: int = 3


@dataclass(frozen=True)
class Situation:
    """The moment of a decision: `present` as far as the data's time goes, `now` by the clock of whoever commits.

    `busy` are partitions that some run is about to write, `held` those whose source is being written or did not pass its gates.
    """

    present: datetime
    now: datetime = field(default_factory=lambda: datetime.now(UTC))
    busy: Collection[str] = ()
    held: Collection[str] = ()


@dataclass(frozen=True)
class JudgedPartition:
    """A verdict. `need` identifies what has to be caught up with: attempts for one need are counted together."""

    partition: ConsumerPartition
    verdict: LateVerdict
    need: str = ""

    @property
    def attempt(self) -> int:
        """The number that the next run for this need has, from 1."""
        return self.partition.attempts + 1 if self.need == self.partition.need else 1


def judge(
    partitions: Sequence[ConsumerPartition], situation: Situation, policy: Policy, *, stateful: bool = False
) -> list[JudgedPartition]:
    """A verdict on each partition, in the order of their time."""
    ordered = sorted(partitions, key=lambda p: p.end)
    return _in_order(ordered, situation, policy) if stateful else [_alone(p, situation, policy) for p in ordered]


def _alone(partition: ConsumerPartition, situation: Situation, policy: Policy) -> JudgedPartition:
    if partition.processed_by is None:
        return JudgedPartition(partition, LateVerdict.UNPROCESSED)
    if not partition.is_late or partition.change is None:
        return JudgedPartition(partition, LateVerdict.UP_TO_DATE)
    need = f"version {partition.change.version}"
    if partition.end > situation.present:
        return JudgedPartition(partition, LateVerdict.CURRENT, need)
    if policy.max_age is not None and situation.present - partition.end > policy.max_age:
        return JudgedPartition(partition, LateVerdict.TOO_OLD, need)
    if situation.now - partition.change.at < policy.settle and partition.claim is None:
        return JudgedPartition(partition, LateVerdict.SETTLING, need)
    return _free(JudgedPartition(partition, LateVerdict.REQUESTED, need), situation, policy)


def _free(wanted: JudgedPartition, situation: Situation, policy: Policy) -> JudgedPartition:
    """The wanted request, unless something is in its way."""
    partition = wanted.partition
    verdict = wanted.verdict
    if partition.claim is not None or partition.key in situation.busy:
        verdict = LateVerdict.UNDER_WAY
    elif wanted.attempt > policy.max_attempts:
        verdict = LateVerdict.GIVEN_UP
    elif partition.key in situation.held:
        verdict = LateVerdict.HELD_BACK
    return JudgedPartition(partition, verdict, wanted.need)


def _in_order(partitions: Sequence[ConsumerPartition], situation: Situation, policy: Policy) -> list[JudgedPartition]:
    """One partition at a time: those after it build on what it becomes."""
    judged: list[JudgedPartition] = []
    newest, waiting = -1, False
    for partition in partitions:
        found = _alone(partition, situation, policy)
        run = partition.processed_by
        overtaken = run is not None and run < newest
        if overtaken and found.verdict not in (LateVerdict.REQUESTED, LateVerdict.UNDER_WAY, LateVerdict.GIVEN_UP):
            # Whoever ran the one before it, however old, has decided that all after it follow.
            found = _free(JudgedPartition(partition, LateVerdict.REQUESTED, f"after run {newest}"), situation, policy)
        if waiting and run is not None and found.verdict not in (LateVerdict.TOO_OLD, LateVerdict.UNDER_WAY):
            found = JudgedPartition(partition, LateVerdict.AFTER_ANOTHER, found.need)
        waiting = waiting or found.verdict not in (
            LateVerdict.UP_TO_DATE,
            LateVerdict.UNPROCESSED,
            LateVerdict.CURRENT,
            LateVerdict.TOO_OLD,
        )
        newest = max(newest, run if run is not None else -1)
        judged.append(found)
    return judged


@dataclass(frozen=True)
class Request:
    """Partitions that one run processes, in order, and the claim that names the run."""

    claim: str
    partitions: tuple[JudgedPartition, ...]

    @property
    def first(self) -> str:
        """The key of the first partition."""
        return self.partitions[0].partition.key

    @property
    def last(self) -> str:
        """The key of the last partition."""
        return self.partitions[-1].partition.key


def by_key(judged: Collection[JudgedPartition]) -> Mapping[str, JudgedPartition]:
    """The verdicts by partition key."""
    return {found.partition.key: found for found in judged}
