"""Hours that a sensor's own runs are for, while these wait, work, or are about to be started again.

Dagster tells of the partitions of a run one by one, after it has made the run. A daemon that dies in between has told of
some: its next tick queues the run all the same, and to whoever asks for the status of partitions the others look as if
nobody had taken them. The run's own tags name all of them.

A run whose worker died is failed until the daemon has made its next attempt: meanwhile it counts as well.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime, timedelta

import dagster as dg

from de_resources.compat.queueing import AUTO_RETRY_RUN_ID_TAG, WILL_RETRY_TAG
from de_resources.run_queue.places import partition_range

SENSOR = "dagster/sensor_name"
"""Dagster's tag of a run that a sensor asked for."""
RETRIED_WITHIN = timedelta(minutes=30)
"""A next attempt is made within seconds. What has none by then gets none: its job is gone, or retries were switched off."""
# One that was made and not queued is not: its tick is taken up before the sensor looks again, or it never runs.
_LIVE = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]


def asked_for(instance: dg.DagsterInstance, sensor: str, hours: Collection[str]) -> set[str]:
    """Those of these hours, by their keys, that a run of the sensor is for which is under way, or about to be again."""
    if not hours:
        return set()
    runs = [*_about_to_be_retried(instance, sensor), *_under_way(instance, sensor)]
    ranges = [(first, last) for first, last in (partition_range(run.tags) for run in runs) if first and last]
    # Keys of hours sort as their times do.
    return {hour for hour in hours if any(first <= hour <= last for first, last in ranges)}


def _about_to_be_retried(instance: dg.DagsterInstance, sensor: str) -> list[dg.DagsterRun]:
    """To be asked before what is under way: an attempt that is made in between is found there."""
    failed = dg.RunsFilter(
        statuses=[dg.DagsterRunStatus.FAILURE],
        tags={SENSOR: sensor, WILL_RETRY_TAG: "true"},
        updated_after=datetime.now(UTC) - RETRIED_WITHIN,
    )
    return [run for run in instance.get_runs(failed) if AUTO_RETRY_RUN_ID_TAG not in run.tags]


def _under_way(instance: dg.DagsterInstance, sensor: str) -> list[dg.DagsterRun]:
    return list(instance.get_runs(dg.RunsFilter(statuses=_LIVE, tags={SENSOR: sensor})))
