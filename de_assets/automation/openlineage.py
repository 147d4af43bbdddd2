"""Runs told to whoever listens, as OpenLineage events: by a sensor while the daemon runs, and at the end of `de run`.

Pattern: Dataset Tracker - no run waits for a listener. The sensor reads the event log, and goes on where it had got.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

import dagster as dg

from de_assets.dataset import pattern_tags
from de_resources.sensor_interval import sensor_seconds
from de_resources.settings import Settings

if TYPE_CHECKING:
    from de_resources.openlineage.relay import Relayed

NAMESPACE_VARIABLE = "OPENLINEAGE_NAMESPACE"
NAMESPACE = "de-patterns"
FOLDER = "openlineage"
"""Below the home: how far the relay has come, and the events, where no listener is configured."""


def tell_runs(instance: dg.DagsterInstance, locations: Iterable[dg.Definitions]) -> Relayed:
    """Tell what has happened since the last time. Never raises for a listener that is away."""
    graphs = [location.resolve_asset_graph() for location in locations]
    return _tell(
        instance, {key: graph.get(key).parent_keys for graph in graphs for key in graph.materializable_asset_keys}
    )


def _tell(instance: dg.DagsterInstance, parents: dict[dg.AssetKey, Iterable[dg.AssetKey]]) -> Relayed:
    # Here and not above: the client and what it talks with are for the few processes that tell.
    from de_resources.openlineage.relay import Relay

    names = {key.to_user_string(): [each.to_user_string() for each in above] for key, above in parents.items()}
    namespace = os.environ.get(NAMESPACE_VARIABLE) or NAMESPACE
    return Relay(instance, Settings.from_environment().home / FOLDER, namespace, names).relay()


@dg.sensor(
    name="openlineage_events",
    minimum_interval_seconds=sensor_seconds(),
    default_status=dg.DefaultSensorStatus.RUNNING,
    tags=pattern_tags("dataset_tracker"),
    description="Tells every run that has begun or ended as OpenLineage events; starts no run.",
)
def openlineage_events(context: dg.SensorEvaluationContext) -> dg.SkipReason:
    """Tell what is new, and say how much that was."""
    graph = context.repository_def.asset_graph if context.repository_def else None
    keys = graph.materializable_asset_keys if graph else ()
    done = _tell(context.instance, {key: graph.get(key).parent_keys for key in keys} if graph else {})
    return dg.SkipReason(_said(done))


def _said(done: Relayed) -> str:
    refused = (
        f"; {done.refused} were refused for good, see `refused-*.jsonl` beside its position" if done.refused else ""
    )
    bare = f"; told without steps: {', '.join(done.without_steps)}" if done.without_steps else ""
    behind = f"; stopped: {done.away}. The next tick goes on there." if done.away else "."
    return f"{done.events} events of {done.runs} ended runs were taken{refused}{bare}{behind}"
