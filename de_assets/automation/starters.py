"""What makes each asset of a graph run, read from the graph itself: conditions, sensors, schedules, polls, or a person.

An automation condition counts where a sensor that is on evaluates it, a sensor or schedule where it is on from the first start
of the daemon and targets the asset. What only repeats what was computed before, such as a sensor for late data, starts no
new partition: it is listed and does not count. An asset that people start says why in its metadata (`BY_HAND`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import dagster as dg

ASKS_FIRST = "starts/asks_first"
"""Tag of a schedule that starts something only where there is something to read."""
AGAIN_ONLY = "starts/again_only"
"""Tag of a sensor or schedule that requests nothing but what was computed before."""
BY_HAND = "starts/by_hand"
"""Metadata of an asset that no machine starts: why."""


Clockwork = dg.SensorDefinition | dg.ScheduleDefinition


class Kind(StrEnum):
    """What starts an asset."""

    CONDITION = "condition"
    SENSOR = "sensor"
    SCHEDULE = "schedule"
    POLL = "poll"
    BY_HAND = "by hand"


@dataclass(frozen=True)
class Starter:
    """One thing that starts an asset. `again_only`: it never starts a partition that nobody has computed."""

    kind: Kind
    said: str
    again_only: bool = False

    def __str__(self) -> str:
        return f"{self.kind}: {self.said}" if self.kind == Kind.BY_HAND else f"{self.kind} {self.said}"


def starters(defs: dg.Definitions) -> Mapping[dg.AssetKey, Sequence[Starter]]:
    """Of every asset that the location can materialise, in order of its key, what starts it; nothing: it waits for a person."""
    graph, targeted = defs.resolve_asset_graph(), _targeted(defs)
    evaluated = {key for sensor in _evaluators(defs) for key in sensor.asset_selection.resolve(graph)}
    found: dict[dg.AssetKey, list[Starter]] = {}
    for key in sorted(graph.materializable_asset_keys):
        node = graph.get(key)
        condition, by_hand = node.automation_condition, node.metadata.get(BY_HAND)
        own = (
            [Starter(Kind.CONDITION, condition.get_label() or str(condition))] if condition and key in evaluated else []
        )
        own += [starter for target, starter in targeted if target == key]
        own += [Starter(Kind.BY_HAND, str(by_hand))] if by_hand else []
        found[key] = own
    return found


def waiting_for_a_person(found: Mapping[dg.AssetKey, Sequence[Starter]]) -> list[str]:
    """The assets of which nothing starts what is new, and which do not say that this is meant."""
    return [key.to_user_string() for key, own in found.items() if all(starter.again_only for starter in own)]


def _evaluators(defs: dg.Definitions) -> Iterator[dg.AutomationConditionSensorDefinition]:
    for sensor in defs.get_repository_def().sensor_defs:
        if isinstance(sensor, dg.AutomationConditionSensorDefinition) and _is_on(sensor):
            yield sensor


def _targeted(defs: dg.Definitions) -> list[tuple[dg.AssetKey, Starter]]:
    repository = defs.get_repository_def()
    sensors = [each for each in repository.sensor_defs if not isinstance(each, dg.AutomationConditionSensorDefinition)]
    jobs: list[tuple[Clockwork, str]] = [(each, target.job_name) for each in sensors for target in each.targets]
    jobs += [(each, each.job_name) for each in repository.schedule_defs]
    found = {
        (key, Starter(_kind(each), _said(each), again_only=AGAIN_ONLY in each.tags))
        for each, job in jobs
        if _is_on(each)
        for key in repository.get_job(job).asset_layer.selected_asset_keys
    }
    return sorted(found, key=lambda pair: (pair[0], pair[1].again_only, pair[1].said))


def _is_on(each: Clockwork) -> bool:
    return each.default_status in (dg.DefaultSensorStatus.RUNNING, dg.DefaultScheduleStatus.RUNNING)


def _kind(each: Clockwork) -> Kind:
    if isinstance(each, dg.SensorDefinition):
        return Kind.SENSOR
    return Kind.POLL if ASKS_FIRST in each.tags else Kind.SCHEDULE


def _said(each: Clockwork) -> str:
    if isinstance(each, dg.SensorDefinition):
        return each.name
    cron = each.cron_schedule
    return f"{each.name} ({cron if isinstance(cron, str) else ', '.join(cron)})"
