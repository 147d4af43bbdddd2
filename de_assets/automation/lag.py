"""Every reader of the graph that keeps a position is measured every ten minutes, whether it runs or not.

Pattern: Lag Detector. Readers are found in the graph: whoever depends on a topic (`source/topic` of an external asset) says who
keeps its position (`reads/<topic>`). Whoever has no partitions and reads tables of the lake has read them at a version, in
whatever store it writes; so has a partitioned reader of a whole table that says how far behind it may be
(`reads/at_most_minutes`). A reader of a topic that does not say who keeps its position is refused when the location is loaded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg

from de_assets.automation.maintenance.lake_tables import LakeTables
from de_assets.dataset import pattern_tags
from de_checks.factory import CheckRun
from de_checks.lag import topic_lag_check, version_lag_check
from de_checks.lag.topic import Position
from de_resources.delta.write.stream import CHECKPOINT
from de_resources.kafka.append_log import AppendLog
from de_resources.kafka.errors import TopicMissing, UnknownKeeper
from de_resources.kafka.keepers import (
    KINDS,
    READS,
    KeptPosition,
    at_cursor,
    at_group,
    at_stream,
)
from de_resources.kafka.topic import Topic
from de_resources.replication.topic import replicated_to
from de_resources.sensor_cursor import sensor_cursor

JOB = "lag"
TOPIC = "source/topic"
AT_MOST = "reads/at_most_minutes"
"""Metadata of a reader: how far behind it promises to be at most, where that is not two hours for a topic, a day for tables."""

_DAY = 24 * 60

Assets = Sequence[dg.AssetsDefinition | dg.AssetSpec]


def behind_at_most(minutes: int) -> dict[str, Any]:
    """Metadata of a reader that promises another time than the usual one."""
    return {AT_MOST: minutes}


def lag_checks(assets: Assets) -> list[dg.AssetChecksDefinition]:
    """One check for each topic that an asset reads, and one for each asset that reads tables whole. Raises `UnknownKeeper`."""
    return [*_of_topics(assets), *_of_tables(assets)]


def lag_schedule(checks: Sequence[dg.AssetChecksDefinition]) -> dg.ScheduleDefinition:
    """When the job `lag` measures, beside the runs of the readers: one that stands still runs no check of its own."""
    job = dg.define_asset_job(
        JOB,
        selection=dg.AssetSelection.checks(*checks),
        description="Measures how far every reader that keeps a position is behind.",
        tags=pattern_tags("lag_detector"),
    )
    return dg.ScheduleDefinition(
        name="lag_measured",
        job=job,
        cron_schedule="*/10 * * * *",
        execution_timezone="UTC",
        default_status=dg.DefaultScheduleStatus.RUNNING,
        tags=pattern_tags("lag_detector"),
    )


def _of_topics(assets: Assets) -> Iterator[dg.AssetChecksDefinition]:
    specs = list(_specs(assets))
    topics = {spec.key: str(spec.metadata[TOPIC]) for spec in specs if TOPIC in spec.metadata}
    for spec in specs:
        for topic in (topics[dep.asset_key] for dep in spec.deps if dep.asset_key in topics):
            kind, name = _keeper(spec, topic)
            if kind == "with":
                continue
            at_most = timedelta(minutes=float(spec.metadata.get(AT_MOST, 120)))
            position, resources = _position(kind, name)
            yield topic_lag_check(spec, topic, position, at_most=at_most, resources=("broker", *resources))


def _of_tables(assets: Assets) -> Iterator[dg.AssetChecksDefinition]:
    # A dataset that keeps versions has no number of which a reader could be behind.
    known = {spec.key: spec for spec in LakeTables.of(assets).own.values()}
    for definition in assets:
        readers = [] if isinstance(definition, dg.AssetSpec) else [s for s in definition.specs if _reads_whole(s)]
        # The outputs of one step have one position: the last one is written when the others are.
        for spec in readers[-1:]:
            if sources := [known[dep.asset_key] for dep in spec.deps if dep.asset_key in known]:
                yield version_lag_check(
                    spec, sources, at_most=timedelta(minutes=float(spec.metadata.get(AT_MOST, _DAY)))
                )


def _reads_whole(spec: dg.AssetSpec) -> bool:
    return spec.partitions_def is None or AT_MOST in spec.metadata


def _specs(assets: Assets) -> Iterator[dg.AssetSpec]:
    for definition in assets:
        yield from [definition] if isinstance(definition, dg.AssetSpec) else definition.specs


def _keeper(spec: dg.AssetSpec, topic: str) -> tuple[str, str]:
    said = spec.metadata.get(f"{READS}{topic}")
    kind, _, name = str(said or "").partition(" ")
    if kind not in KINDS or bool(name) == (kind == "stream"):
        raise UnknownKeeper(spec.key.to_user_string(), topic, None if said is None else str(said))
    return kind, name


def _position(kind: str, name: str) -> tuple[Position, tuple[str, ...]]:
    """Who is asked, and the resources that this takes."""

    def of_stream(run: CheckRun, topic: Topic) -> KeptPosition | None:
        return at_stream(Path(run.table().uri) / CHECKPOINT, topic.topic)

    def of_group(run: CheckRun, topic: Topic) -> KeptPosition | None:
        del run
        return at_group(topic, name)

    def of_replica(run: CheckRun, topic: Topic) -> KeptPosition | None:
        replica = Topic(run.resources.staging_broker.client_config(), name)
        try:
            replica.partitions()
        except TopicMissing:
            return None
        positions = replicated_to(topic, replica)
        return KeptPosition(positions.offsets, positions.source) if positions.offsets else None

    def of_sensor(run: CheckRun, topic: Topic) -> KeptPosition | None:
        return at_cursor(sensor_cursor(run.instance, name)) or _taken_in_by_hand(run, topic)

    return {
        "stream": (of_stream, ("lake",)),
        "group": (of_group, ()),
        "replica": (of_replica, ("staging_broker",)),
        "sensor": (of_sensor, ()),
    }[kind]


def _taken_in_by_hand(run: CheckRun, topic: Topic) -> KeptPosition | None:
    """Where the sensor has never looked, the asset takes in all that the topic has when it is materialised."""
    last = run.instance.get_latest_materialization_event(run.asset.key)
    if last is None:
        return None
    return KeptPosition(AppendLog(topic.config, topic.topic).offsets_at(datetime.fromtimestamp(last.timestamp, UTC)))
