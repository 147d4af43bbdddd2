"""Hours that a sensor's own runs are for, while these wait or work.

Dagster tells of the partitions of a run one by one, after it has made the run. A daemon that dies in between has told of
some: its next tick queues the run all the same, and to whoever asks for the status of partitions the others look as if
nobody had taken them. The run's own tags name all of them.
"""

from __future__ import annotations

from collections.abc import Collection

import dagster as dg

from de_resources.run_queue.places import partition_range

SENSOR = "dagster/sensor_name"
"""Dagster's tag of a run that a sensor asked for."""
# One that was made and not queued is not: its tick is taken up before the sensor looks again, or it never runs.
_UNDER_WAY = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]


def asked_for(instance: dg.DagsterInstance, sensor: str, hours: Collection[str]) -> set[str]:
    """Those of these hours, by their keys, that a run of the sensor is for which is under way."""
    if not hours:
        return set()
    runs = instance.get_runs(dg.RunsFilter(statuses=_UNDER_WAY, tags={SENSOR: sensor}))
    ranges = [(first, last) for first, last in (partition_range(run.tags) for run in runs) if first and last]
    # Keys of hours sort as their times do.
    return {hour for hour in hours if any(first <= hour <= last for first, last in ranges)}
