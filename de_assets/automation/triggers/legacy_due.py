"""Hours of legacy visits that are over and that nobody has loaded: a database tells nobody that an hour has ended.

The instance remembers what was asked for: an hour is due as long as no run has materialised it or is about to. So nothing is
forgotten while the daemon is down, and nothing is asked for twice when it comes back. The database is asked first; one that is
away, or holds no visit yet, starts no run. After a run that failed the next one waits longer each time, as with polls.

Contiguous hours become one run, which reads them by one bounded query.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import dagster as dg

from de_assets.automation.triggers.asked_for import asked_for
from de_assets.automation.triggers.polling import POLL, resting
from de_assets.dataset import pattern_tags
from de_assets.partitions import hourly
from de_assets.ranges import contiguous, range_tags
from de_assets.sources.systems import LEGACY_VISITS_RELATION
from de_resources.local.endpoints import ServiceUnavailable
from de_resources.postgres import PostgresDatabase
from de_resources.postgres.key_digests import has_rows

LEGACY_VISITS = dg.AssetKey(["bronze", "legacy_visits"])
HOURS_PER_RUN = 7 * 24
RUNS_PER_TICK = 4
_TAGS = {POLL: LEGACY_VISITS.to_user_string()}


@dg.sensor(
    name="legacy_hours_due",
    description="Requests the hours of legacy visits that are over and that no run has taken.",
    target=dg.AssetSelection.assets(LEGACY_VISITS),
    minimum_interval_seconds=60,
    default_status=dg.DefaultSensorStatus.RUNNING,
    tags=pattern_tags("incremental_loader"),
)
def legacy_hours_due(
    context: dg.SensorEvaluationContext, database: PostgresDatabase
) -> list[dg.RunRequest] | dg.SkipReason:
    """One run for each stretch of hours without a gap. Starts no engine."""
    due = due_hours(context.instance)
    if not due:
        return dg.SkipReason("Every hour that is over has its run.")
    held = resting(context.instance, _TAGS, datetime.now(UTC))
    if held:
        return dg.SkipReason(held)
    try:
        if not has_rows(database, LEGACY_VISITS_RELATION):
            return dg.SkipReason(f"`{LEGACY_VISITS_RELATION}` is not there, or holds no row yet.")
    except ServiceUnavailable as away:
        return dg.SkipReason(str(away))
    ranges = contiguous(due, timedelta(hours=1), at_most=HOURS_PER_RUN)[:RUNS_PER_TICK]
    return [_request(hours[0], hours[-1]) for hours in ranges]


def due_hours(instance: dg.DagsterInstance) -> list[datetime]:
    """The hours of the calendar that are over, were never materialised, and are in no run that has not ended."""
    loaded = instance.get_materialized_partitions(LEGACY_VISITS)
    missing = [key for key in hourly.get_partition_keys() if key not in loaded]
    status = instance.get_status_by_partition(LEGACY_VISITS, missing, hourly) or {} if missing else {}
    asked = asked_for(instance, legacy_hours_due.name, missing)
    open_ = [key for key in missing if key not in asked and status.get(key) != dg.AssetPartitionStatus.IN_PROGRESS]
    # A run that ended between the two looks had not loaded its hours at the first, and was over at the second.
    meanwhile = instance.get_materialized_partitions(LEGACY_VISITS) if open_ else set()
    return [datetime.strptime(key, hourly.fmt).replace(tzinfo=UTC) for key in open_ if key not in meanwhile]


def _request(first: datetime, last: datetime) -> dg.RunRequest:
    # No run key: an hour that was loaded and whose materialisation a person wiped is due again.
    keys = first.strftime(hourly.fmt), last.strftime(hourly.fmt)
    if first == last:
        return dg.RunRequest(partition_key=keys[0], tags=_TAGS)
    return dg.RunRequest(tags={**_TAGS, **range_tags(*keys)})
