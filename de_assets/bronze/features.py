"""Released features: a run per release notification, started by the event and carrying it.

Grain: one notification in exactly one of the two tables. Pattern: External Trigger - the sensor `feature_released` starts
the job `features_release` for an event of the topic, and whoever is not connected to the topic starts it over GraphQL with
the event in the run's configuration. Launched by hand, without an event, the assets take in all that the topic retains.
"""

from collections.abc import Iterable
from datetime import UTC, datetime

import dagster as dg
from pydantic import Field
from pyspark.sql import DataFrame

from de_assets import __version__
from de_assets.contracts.features import Features, FeaturesDeadLetter
from de_assets.dataset import dataset, reads
from de_assets.sources import topics
from de_assets.sources.releases import ReleaseEvent, UnreadableEvent, read_event
from de_assets.sources.systems import FEATURES_TOPIC
from de_assets.sources.trigger import EVENT, PUSH, trigger_tags
from de_checks.contract import contract_check
from de_resources.contract import Contract
from de_resources.kafka import KafkaBroker
from de_resources.kafka.reader import read_topic, records_at
from de_resources.kafka.topic import Record
from de_resources.lineage.inputs import made_of
from de_resources.retries import RETRY_TRANSIENT
from de_resources.spark import SparkEngine


class Announced(dg.Config):
    """Which notification to take in."""

    event: ReleaseEvent | None = Field(default=None, description="The event; none: all that the topic retains")


class Place(dg.Config):
    """Where the topic has a record."""

    partition: int = Field(ge=0)
    offset: int = Field(ge=0)


class SetAside(dg.Config):
    """Which records to set aside."""

    records: list[Place] = Field(default=[], description="Their places; none: all that the topic retains")


@dg.asset(
    retry_policy=RETRY_TRANSIENT,
    **dataset(
        Features, patterns=["external_trigger"], mode="merge", **reads(topics.FEATURES, "sensor feature_released")
    ),
    deps=[FEATURES_TOPIC],
)
def features(
    context: dg.AssetExecutionContext, config: Announced, broker: KafkaBroker, spark: SparkEngine
) -> DataFrame:
    """The announced release, or all of them. The same event twice changes nothing."""
    if config.event is None:
        return _frame(spark, Features, map(_row, _announced(_retained(broker))))
    if EVENT not in context.run.tags:
        context.instance.add_run_tags(context.run_id, trigger_tags(config.event, PUSH, datetime.now(UTC)))
    return _frame(spark, Features, [_row(config.event)])


@dg.asset(
    retry_policy=RETRY_TRANSIENT,
    **dataset(
        FeaturesDeadLetter,
        patterns=["external_trigger", "dead_letter"],
        mode="merge",
        **reads(topics.FEATURES, "with bronze/features"),
    ),
    deps=[FEATURES_TOPIC],
)
def features_dead_letter(config: SetAside, broker: KafkaBroker, spark: SparkEngine) -> DataFrame:
    """The records at these places, with the reason for which each is not understood; none for one that is."""
    places = {(record.partition, record.offset) for record in config.records}
    records = records_at(broker.client_config(), topics.FEATURES, places) if places else _retained(broker)
    return _frame(spark, FeaturesDeadLetter, _unreadable(records))


def _retained(broker: KafkaBroker) -> list[Record]:
    return read_topic(broker.client_config(), topics.FEATURES).records


def _announced(records: Iterable[Record]) -> list[ReleaseEvent]:
    """The events that can be read, each once: its first delivery counts."""
    events: dict[str, ReleaseEvent] = {}
    for record in records:
        try:
            event = read_event(record.value)
        except UnreadableEvent:
            continue
        if event is not None:
            events.setdefault(event.identity, event)
    return list(events.values())


def _unreadable(records: Iterable[Record]) -> Iterable[tuple[object, ...]]:
    for record in records:
        try:
            read_event(record.value)
        except UnreadableEvent as error:
            place = (record.partition, record.offset, record.append_time)
            yield (record.value, error.reason, error.field, *place, __version__)


def _row(event: ReleaseEvent) -> tuple[object, ...]:
    release = event.data
    what = (release.feature, release.version, release.title, release.rollout_percent)
    return (event.source, event.id, event.event_time, *what)


def _frame(
    spark: SparkEngine, model: type[Features | FeaturesDeadLetter], rows: Iterable[tuple[object, ...]]
) -> DataFrame:
    frame = spark.spark_session.createDataFrame(list(rows), Contract.of(model).struct_type())
    return made_of(frame, FEATURES_TOPIC, ["value", "partition", "offset", "timestamp"])


checks = [contract_check(features), contract_check(features_dead_letter, blocking=False)]
