"""Which jobs of the engine something takes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

from pyspark.sql import SparkSession

from de_resources.compat.java_process import wait_until_told


@contextmanager
def counted_jobs(session: SparkSession) -> Iterator[list[int]]:
    """The numbers of the jobs that this thread starts meanwhile; they are there at its end. For sessions in this process."""
    jobs: list[int] = []
    context, group = session.sparkContext, uuid4().hex
    context.setJobGroup(group, group)
    try:
        yield jobs
    finally:
        wait_until_told(session)
        jobs.extend(context.statusTracker().getJobIdsForGroup(group))
        # None takes the property away, as PySpark's documentation says and its annotation does not.
        context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
