"""Hours of legacy visits that got rows after they were loaded, by a transaction that was open across their end.

A row's ingestion time is set when its transaction begins, or by the row's producer, and seen when it commits: the hour may have
been loaded in between, and no later increment asks for it. Which transactions are open, a database does not tell every
role. So what was loaded is compared with what is there by now.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import UTC, datetime, timedelta

import dagster as dg

from de_assets.automation.starters import AGAIN_ONLY
from de_assets.dataset import pattern_tags
from de_assets.partitions import hourly
from de_assets.sources.systems import LEGACY_VISITS_RELATION
from de_resources.lake import Lake
from de_resources.local.endpoints import ServiceUnavailable
from de_resources.postgres import PostgresDatabase, RelationMissing
from de_resources.postgres.key_digests import KeyDigest, of_relation, of_table

LEGACY_VISITS = dg.AssetKey(["bronze", "legacy_visits"])
WATCHED = timedelta(hours=48)
"""Before the newest loaded hour: longer than a transaction of the previous system may take."""
_HOUR = timedelta(hours=1)


@dg.sensor(
    name="legacy_hours_grown",
    description=f"Requests loaded hours of the last {WATCHED} again whose rows at the source are others by now.",
    target=dg.AssetSelection.assets(LEGACY_VISITS),
    minimum_interval_seconds=300,
    default_status=dg.DefaultSensorStatus.RUNNING,
    tags={**pattern_tags("incremental_loader"), AGAIN_ONLY: ""},
)
def legacy_hours_grown(
    context: dg.SensorEvaluationContext, lake: Lake, database: PostgresDatabase
) -> dg.SensorResult | dg.SkipReason:
    """One query to the database. The same rows are requested once, so that an hour that fails is not tried for ever."""
    loaded = {_hour(key) for key in context.instance.get_materialized_partitions(LEGACY_VISITS)}
    if not loaded:
        return dg.SkipReason("No hour was loaded yet.")
    start, end = max(loaded) - WATCHED, max(loaded) + _HOUR
    try:
        there = of_relation(database, LEGACY_VISITS_RELATION, key="visit_id", at="ingestion_time", start=start, end=end)
    except (ServiceUnavailable, RelationMissing) as away:
        return dg.SkipReason(str(away))
    table = lake.table(LEGACY_VISITS)
    here = of_table(table, key="visit_id", hour="ingestion_hour", start=start, end=end)
    grown = different(loaded, there, here, since=start)
    busy = _in_progress(context.instance, list(grown))
    requests = [
        dg.RunRequest(run_key=f"{key}@{grown[key]}", partition_key=key) for key in sorted(grown) if key not in busy
    ]
    return dg.SensorResult(
        run_requests=requests,
        skip_reason=None if requests else f"{len(loaded)} hours, none of them has other rows by now.",
    )


def different(
    loaded: Collection[datetime],
    there: Mapping[datetime, KeyDigest],
    here: Mapping[datetime, KeyDigest],
    *,
    since: datetime,
) -> dict[str, KeyDigest]:
    """Of the loaded hours since then, by partition key, those whose rows differ, with what is at the source."""
    nothing = KeyDigest()
    return {
        at.strftime(hourly.fmt): there.get(at, nothing)
        for at in sorted(loaded)
        if at >= since and there.get(at, nothing) != here.get(at, nothing)
    }


def _in_progress(instance: dg.DagsterInstance, keys: list[str]) -> set[str]:
    status = instance.get_status_by_partition(LEGACY_VISITS, keys, hourly) or {} if keys else {}
    return {key for key, state in status.items() if state == dg.AssetPartitionStatus.IN_PROGRESS}


def _hour(key: str) -> datetime:
    return datetime.strptime(key, hourly.fmt).replace(tzinfo=UTC)
