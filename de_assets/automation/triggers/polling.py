"""Systems that tell nobody that they changed are asked by the clock, and a run starts where there is something to read.

A poll is a schedule. At each tick it asks one cheap question: is the source still where the last run left it? What there is
(the ends of a topic, the look of a folder) is held against what was read (a position, a look in the metadata), without a run
or an engine. Nothing is forgotten when a tick is missed or a run fails, and nothing runs where nothing changed.

After a run that failed the next one waits longer each time: what is broken is told by the sensor `alerts`, and not by a
hundred runs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from pathlib import Path
from typing import Any

import dagster as dg

from de_assets.automation.starters import ASKS_FIRST
from de_assets.sources.landing import folder_look
from de_resources.delta.write.stream import CHECKPOINT
from de_resources.errors import TransientError
from de_resources.kafka.stream_position import offsets_ahead, stream_position
from de_resources.kafka.topic import Topic

News = Callable[[dg.ScheduleEvaluationContext], str | None]
"""Says what there is to read, or None where the source is where the last run left it."""

LOOK = "source/look"
"""Metadata of a materialisation: how the folder looked that it was read from."""

POLL = "poll/asset"
"""Run tag: the asset that a poll requested."""

FIRST_WAIT, LONGEST_WAIT = timedelta(minutes=10), timedelta(hours=6)
_COUNTED = 8


def poll(
    asset: dg.AssetsDefinition,
    cron: str,
    news: News,
    *,
    resources: Collection[str],
    name: str | None = None,
    renewed_after: timedelta | None = None,
) -> dg.ScheduleDefinition:
    """Ask at every tick of `cron` (UTC), and request the asset where `news` says why. Skips while a run of it is under way.

    `renewed_after`: run without news when the last materialisation is as old, for positions that a broker keeps for a
    limited time only.
    """
    key = asset.key

    @dg.schedule(
        name=name or f"{'_'.join(key.path)}_poll",
        description=f"Asks whether there is something to read for {key.to_user_string()}, and runs it where there is.",
        cron_schedule=cron,
        execution_timezone="UTC",
        target=asset,
        required_resource_keys=set(resources),
        default_status=dg.DefaultScheduleStatus.RUNNING,
        tags={ASKS_FIRST: ""},
    )
    def polled(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        now = context.scheduled_execution_time.astimezone(UTC)
        held = _under_way(context.instance, key) or resting(context.instance, {POLL: key.to_user_string()}, now)
        if held:
            return dg.SkipReason(held)
        try:
            why = news(context)
        except TransientError as error:
            return dg.SkipReason(str(error))
        if why is None and renewed_after is not None and _is_older(context.instance, key, now - renewed_after):
            why = f"nothing new; the position was committed more than {renewed_after.days} days ago and is renewed"
        if why is None:
            return dg.SkipReason("The source is where the last run left it.")
        return dg.RunRequest(tags={POLL: key.to_user_string(), "poll/why": why})

    return polled


def unread_by_stream(asset: dg.AssetsDefinition, topic: str) -> News:
    """What a topic has that the asset's stream has not committed. Needs the resources `broker` and `lake`."""

    def news(context: dg.ScheduleEvaluationContext) -> str | None:
        resources: Any = context.resources
        table = resources.lake.table(asset.key, asset.specs_by_key[asset.key].metadata)
        position = stream_position(Path(table.uri) / CHECKPOINT, topic)
        return behind(Topic(resources.broker.client_config(), topic), position)

    return news


def behind(topic: Topic, position: Mapping[int, int] | None) -> str | None:
    """What is said where the topic is not at this position."""
    ahead = offsets_ahead(topic, position)
    return f"`{topic.topic}` is {ahead} offsets from where it was left" if ahead else None


def changed_folder(asset: dg.AssetsDefinition, folder: str) -> News:
    """A folder of the drop zone that is complete and looks otherwise than the one that was read (metadata `LOOK`).

    Needs the resource `landing`.
    """

    def news(context: dg.ScheduleEvaluationContext) -> str | None:
        look = folder_look(context.resources.landing.path / folder)
        if look is None or look == _last_look(context.instance, asset.key):
            return None
        return f"`{folder}` was landed again"

    return news


def _under_way(instance: dg.DagsterInstance, key: dg.AssetKey) -> str | None:
    """Why not now: somebody's run of the asset has not ended."""
    records = instance.get_asset_records([key])
    last = records[0].asset_entry.last_run_id if records else None
    run = instance.get_run_by_id(last) if last else None
    return f"The run {run.run_id[:8]} of it is under way." if run is not None and not run.is_finished else None


def resting(instance: dg.DagsterInstance, tags: Mapping[str, str], now: datetime) -> str | None:
    """Why not now: of the runs with these tags the newest failed, one after the other, the last of them a moment ago."""
    runs = instance.get_run_records(dg.RunsFilter(tags=dict(tags)), limit=_COUNTED)
    failures = list(takewhile(lambda record: record.dagster_run.is_failure, runs))
    if not failures:
        return None
    wait = min(FIRST_WAIT * 2 ** (len(failures) - 1), LONGEST_WAIT)
    again = datetime.fromtimestamp(failures[0].end_time or failures[0].create_timestamp.timestamp(), UTC) + wait
    return (
        f"{len(failures)} runs failed one after the other; asked again from {again:%H:%M} UTC on."
        if now < again
        else None
    )


def _is_older(instance: dg.DagsterInstance, key: dg.AssetKey, moment: datetime) -> bool:
    last = instance.get_latest_materialization_event(key)
    return last is not None and last.timestamp < moment.timestamp()


def _last_look(instance: dg.DagsterInstance, key: dg.AssetKey) -> object:
    last = instance.get_latest_materialization_event(key)
    told = last.asset_materialization.metadata.get(LOOK) if last and last.asset_materialization else None
    return told.value if told else None
