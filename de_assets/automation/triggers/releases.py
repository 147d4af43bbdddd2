"""External Trigger: a release notification starts the run that takes it in, once, and tells it why it runs.

The cursor holds the topic's offsets. The daemon writes it together with the runs that the tick requested and before it
launches them; when it dies in between, it launches at its next start what it had written. When it dies earlier, the same
records give the same run keys, and Dagster starts no second run for a key that has one: nor for an event that is delivered
twice. An event whose run fails to start, or fails, is kept in that run's configuration: launch it again from the UI.
"""

import hashlib
import json
from collections.abc import Sequence
from datetime import UTC, datetime

import dagster as dg

from de_assets.dataset import pattern_tags
from de_assets.sources import topics
from de_assets.sources.releases import ReleaseEvent, UnreadableEvent, read_event
from de_assets.sources.trigger import VERSION, trigger_tags
from de_resources.kafka import KafkaBroker
from de_resources.kafka.reader import Batch, read_topic
from de_resources.kafka.topic import Record
from de_resources.local.endpoints import ServiceUnavailable

RECORDS_PER_TICK = 100

features_release = dg.define_asset_job(
    "features_release",
    selection=dg.AssetSelection.assets(["bronze", "features"]),
    description="Takes in one release notification, given as `event` in the run's configuration.",
    tags=pattern_tags("external_trigger"),
)
features_set_aside = dg.define_asset_job(
    "features_set_aside",
    selection=dg.AssetSelection.assets(["bronze", "features_dead_letter"]),
    description="Sets records of the topic `features` aside that nobody can read, given by their places.",
    tags=pattern_tags("dead_letter"),
)


@dg.sensor(
    name="feature_released",
    description="Starts a run for each release notification of the topic `features`; sets aside what it cannot read.",
    jobs=[features_release, features_set_aside],
    minimum_interval_seconds=30,
    default_status=dg.DefaultSensorStatus.RUNNING,
    tags=pattern_tags("external_trigger"),
)
def feature_released(context: dg.SensorEvaluationContext, broker: KafkaBroker) -> dg.SensorResult:
    """Request a run per new event. Starts no engine; while the broker is away, events wait in the topic."""
    try:
        batch = read_topic(broker.client_config(), topics.FEATURES, context.cursor, limit=RECORDS_PER_TICK)
    except ServiceUnavailable as away:
        return dg.SensorResult(skip_reason=str(away), cursor=context.cursor)
    for warning in warnings(batch):
        context.log.warning(warning)
    return answer(batch, datetime.now(UTC))


def answer(batch: Batch, processing_time: datetime) -> dg.SensorResult:
    """What a tick says to what it read. The next one goes on behind it, also where nothing of it asks for a run."""
    requests = run_requests(batch.records, processing_time)
    return dg.SensorResult(
        run_requests=requests,
        cursor=batch.cursor,
        skip_reason=None if requests else f"{len(batch.records)} new records, none of them a release.",
    )


def run_requests(records: Sequence[Record], processing_time: datetime) -> list[dg.RunRequest]:
    """A request per event, in the order of the records, and one for all records that cannot be read."""
    events: dict[str, tuple[ReleaseEvent, Record]] = {}
    unreadable: list[Record] = []
    for record in records:
        try:
            event = read_event(record.value)
        except UnreadableEvent:
            unreadable.append(record)
            continue
        if event is not None:
            events.setdefault(event.identity, (event, record))
    requests = [_release(event, record, processing_time) for event, record in events.values()]
    return [*requests, _set_aside(unreadable)] if unreadable else requests


def warnings(batch: Batch) -> list[str]:
    """What the tick has to say about records that it could not see."""
    gone = [
        f"Partition {partition}: {count} records were removed from the topic `{topics.FEATURES}` before they were read. "
        "Push the events that are missing to the job `features_release`, and raise the topic's retention."
        for partition, count in batch.gone.items()
    ]
    anew = (
        f"The topic `{topics.FEATURES}` was made again since the last tick, and is read from its beginning. "
        "Events that had their run get no second one."
    )
    return [*gone, anew] if batch.anew else gone


def _release(event: ReleaseEvent, record: Record, processing_time: datetime) -> dg.RunRequest:
    origin = f"{topics.FEATURES}/{record.partition}@{record.offset}"
    return dg.RunRequest(
        run_key=event.identity,
        job_name=features_release.name,
        run_config={"ops": {"bronze__features": {"config": {"event": event.model_dump()}}}},
        tags=trigger_tags(event, origin, processing_time),
    )


def _set_aside(records: Sequence[Record]) -> dg.RunRequest:
    places = [{"partition": record.partition, "offset": record.offset} for record in records]
    identity = hashlib.blake2b(json.dumps(places).encode(), digest_size=8).hexdigest()
    return dg.RunRequest(
        run_key=f"unreadable@{identity}",
        job_name=features_set_aside.name,
        run_config={"ops": {"bronze__features_dead_letter": {"config": {"records": places}}}},
        tags={"trigger/origin": topics.FEATURES, "trigger/version": VERSION},
    )
