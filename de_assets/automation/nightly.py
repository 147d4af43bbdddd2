"""What jobs that run every night have in common: one job of ops, tried again after a transient error, and its schedule."""

from collections.abc import Callable, Sequence

import dagster as dg

from de_assets.dataset import pattern_tags
from de_resources.retries import RETRY_TRANSIENT


def job_of(
    name: str,
    ops: Sequence[Callable[[], object]],
    *,
    description: str,
    patterns: Sequence[str] = (),
    then: Sequence[dg.OpDefinition] = (),
) -> dg.JobDefinition:
    """A job of ops that do not wait for each other, carrying these patterns of the catalogue.

    `then`: ops that begin when all of those have ended well; each has the input `done` of nothing, a fan-in.
    """

    @dg.job(op_retry_policy=RETRY_TRANSIENT, name=name, tags=pattern_tags(*patterns), description=description)
    def job() -> None:
        done = [op() for op in ops]
        for op in then:
            op(done=done)

    return job


def nightly(job: str, cron: str, *, description: str, patterns: Sequence[str] = ()) -> dg.ScheduleDefinition:
    """The schedule `<job>_nightly`, in UTC, on from the first start of the daemon."""
    return dg.ScheduleDefinition(
        name=f"{job}_nightly",
        job_name=job,
        cron_schedule=cron,
        execution_timezone="UTC",
        default_status=dg.DefaultScheduleStatus.RUNNING,
        description=description,
        tags=pattern_tags(*patterns),
    )
