"""Every sensor of the graph, asked twice about the same world: what it has asked for once, it does not ask for again.

The sensors are found in the graph, so that a new one is asked without a word here. Between two ticks the daemon is played:
it keeps the cursor, starts no second run for a run key that it knows, and makes a run of each request without one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import dagster as dg
import pytest
from confluent_kafka import Producer
from dagster._core.events import AssetMaterializationPlannedData, DagsterEvent
from dagster._core.test_utils import create_run_for_test
from platform_world import HOURS, PER_HOUR, RATES, WORLD
from waiting import PATIENCE

from de_assets.dashboards.definitions import defs as dashboards
from de_assets.definitions import defs
from de_assets.resources import resources
from de_assets.sources.simulator import create_tables, feed_database, land_visits
from de_assets.sources.topics import FEATURES, TOPICS
from de_resources.kafka import KafkaBroker
from de_resources.local import LocalServices
from de_resources.postgres import PostgresDatabase

pytestmark = pytest.mark.services

SENSORS = [(location, sensor) for location in (defs, dashboards) for sensor in location.sensors or []]
LOOKS = {"waiting_partitions": 2}
"""Looks until it tells: what two in a row have found."""
HAVE_NEWS = {"visits_hour_landed", "legacy_hours_due", "feature_released", "cascade"}
"""Who finds something in this world: where nobody does, two silent ticks prove nothing."""


@dataclass
class Daemon:
    """What the daemon remembers of one sensor."""

    location: dg.Definitions
    sensor: dg.SensorDefinition
    instance: dg.DagsterInstance
    cursor: Any = None
    run_keys: set[str | None] = field(default_factory=set)

    def tick(self) -> list[str]:
        """What is asked for, and not known yet: runs and reported events, for people."""
        if isinstance(self.sensor, dg.AutomationConditionSensorDefinition):
            result = dg.evaluate_automation_conditions(self.location, self.instance, cursor=self.cursor)
            self.cursor = result.cursor
            return [f"{each.key}: {each.true_subset}" for each in result.results if not each.true_subset.is_empty]
        here = dict(self.location.resources or {}) | resources()
        needed = {key: here[key] for key in self.sensor.required_resource_keys}
        with dg.build_sensor_context(
            self.instance, self.cursor, definitions=self.location, resources=needed, sensor_name=self.sensor.name
        ) as context:
            answer = self.sensor.evaluate_tick(context)
        self.cursor = answer.cursor or self.cursor
        new = [each for each in answer.run_requests or [] if each.run_key is None or each.run_key not in self.run_keys]
        self.run_keys |= {each.run_key for each in new if each.run_key is not None}
        for each in new:
            if each.run_key is None:
                self._make_run(each)
        return [str(each.run_key) for each in new] + [str(each) for each in answer.asset_events]

    def _make_run(self, request: dg.RunRequest) -> None:
        """A run, as the daemon makes it: the instance knows from then on what it is about to write."""
        repository = self.location.get_repository_def()
        run = create_run_for_test(self.instance, status=dg.DagsterRunStatus.STARTED, tags=dict(request.tags))
        for target in self.sensor.targets:
            for asset in repository.get_job(target.job_name).asset_layer.selected_asset_keys:
                for key in _partitions(repository.asset_graph.get(asset).partitions_def, request):
                    planned = DagsterEvent.build_asset_materialization_planned_event(
                        run.job_name, "step", AssetMaterializationPlannedData(asset, partition=key)
                    )
                    self.instance.report_dagster_event(planned, run.run_id)


def _partitions(partitions: dg.PartitionsDefinition[Any] | None, request: dg.RunRequest) -> list[str | None]:
    if request.partition_key or partitions is None:
        return [request.partition_key]
    first, last = (request.tags[f"dagster/asset_partition_range_{end}"] for end in ("start", "end"))
    return list(partitions.get_partition_keys_in_range(dg.PartitionKeyRange(first, last)))


@pytest.fixture(scope="module")
def world(new_services: Callable[[], LocalServices]) -> Iterator[dg.DagsterInstance]:
    """Two landed hours, legacy visits in the database, a record that nobody understands, and an hour that was loaded."""
    services = new_services()
    services.up(["postgres", "kafka"], topics=TOPICS)
    land_visits(services.settings.landing, WORLD, HOURS[:2], per_hour=PER_HOUR, irregularities=RATES)
    with pytest.MonkeyPatch.context() as patch, dg.DagsterInstance.ephemeral() as instance:
        patch.setenv("DE_HOME", str(services.settings.home))
        patch.delenv("LAKE_ROOT", raising=False)
        with closing(PostgresDatabase().open()) as connection:
            create_tables(connection)
            feed_database(connection, WORLD, HOURS[0], HOURS[0] + timedelta(hours=1), legacy_per_hour=3)
        producer = Producer({**KafkaBroker().client_config(), "log_level": 0})
        producer.produce(FEATURES, json.dumps({"no": "release"}))
        assert producer.flush(PATIENCE) == 0
        for layer, name in (("bronze", "users_changes"), ("bronze", "devices")):
            instance.report_runless_asset_event(dg.AssetMaterialization([layer, name]))
        yield instance
    services.down()


@pytest.mark.pattern("readiness_marker", "external_trigger")
@pytest.mark.parametrize(("location", "sensor"), SENSORS, ids=[sensor.name for _, sensor in SENSORS])
def test_what_was_asked_for_once_is_not_asked_for_again(
    world: dg.DagsterInstance, location: dg.Definitions, sensor: dg.SensorDefinition
) -> None:
    daemon = Daemon(location, sensor, world)
    first = [event for _ in range(LOOKS.get(sensor.name, 1)) for event in daemon.tick()]
    assert bool(first) or sensor.name not in HAVE_NEWS
    seen = daemon.cursor
    assert [daemon.tick(), daemon.tick()] == [[], []]
    if isinstance(seen, str | None):
        assert daemon.cursor == seen
