"""Steps that run too long and have not ended: a check cannot tell of them, for it runs after its asset."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

import dagster as dg

from de_checks.sla.attempts import Attempt, attempts
from de_checks.sla.duration import NAME, SECONDS, accepted_before, usual_limit
from de_resources.contract.sla import Sla

Limit = tuple[float, bool]
"""Seconds for one partition, and whether they are promised."""


@dataclass(frozen=True)
class OverdueStep:
    """A step that is running: `seconds` since the start of its attempt, `limit` for the partitions that it has to write."""

    run_id: str
    step: str
    assets: tuple[str, ...]
    partitions: int
    seconds: float
    limit: float
    is_promised: bool


def overdue_steps(
    instance: dg.DagsterInstance,
    now: datetime,
    promised: Mapping[str, Sla | None],
    keys_of: Callable[[str, dg.DagsterRun], int] = lambda _asset, _run: 1,
) -> list[OverdueStep]:
    """The running steps that take longer than promised, or than usual by their accepted history (`duration_check`).

    `promised` names the assets that are looked at, `keys_of` how many partitions of an asset a run writes. Counted from the
    start of the running attempt: neither the queue nor attempts that failed count. A start in the future, by a clock that was
    set back since, is none. Reads the event log of the runs that are under way.
    """
    records = instance.get_run_records(dg.RunsFilter(statuses=[dg.DagsterRunStatus.STARTED]))
    return [
        step
        for record in records
        for attempt in attempts(instance, record.dagster_run.run_id).values()
        for step in _overdue(instance, record.dagster_run, attempt, now, promised, keys_of)
    ]


def _overdue(
    instance: dg.DagsterInstance,
    run: dg.DagsterRun,
    attempt: Attempt,
    now: datetime,
    promised: Mapping[str, Sla | None],
    keys_of: Callable[[str, dg.DagsterRun], int],
) -> Iterator[OverdueStep]:
    assets = sorted(attempt.planned & promised.keys())
    if not attempt.runs or attempt.started is None or not assets:
        return
    seconds = (now - attempt.started).total_seconds()
    for asset in assets:
        partitions = max(keys_of(asset, run), 1)
        limit = limit_of(instance, asset, promised[asset])
        if limit is not None and seconds > limit[0] * partitions:
            yield OverdueStep(
                run.run_id, attempt.step, (asset,), partitions, seconds, limit[0] * partitions, is_promised=limit[1]
            )
            return  # one step is one piece of news, however much it writes


def limit_of(instance: dg.DagsterInstance, asset: str, sla: Sla | None) -> Limit | None:
    """What a step of the asset may take for one partition: as promised, else by its history; None where neither says."""
    if sla and sla.takes_at_most:
        return sla.takes_at_most.total_seconds(), True
    check = dg.AssetCheckKey(dg.AssetKey.from_user_string(asset), NAME)
    usual = usual_limit([each[SECONDS] for each in accepted_before(instance, check) if SECONDS in each])
    return None if usual is None else (usual, False)
