"""A program for `test_open_calendar.py`: the platform's own sensor and conditions at chosen moments, and no engine.

`DE_CALENDAR=2024-12-31T20/ python open_calendar.py LANDING '{"2025-01-01T00:05": ["2024-12-31T23"], …}'` lands the hours of
each moment, asks sensor and conditions until they request nothing more, and prints by moment what was requested. What is
requested counts as computed and as good.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import dagster as dg

from de_assets.automation.triggers.landing import VISITS, visits_hour_landed
from de_assets.definitions import defs
from de_assets.ranges import RANGE_END, RANGE_START
from de_assets.sources.landing import MARKER, PART, hour_folder
from de_assets.sources.landing_zone import LandingZone
from de_checks.per_key import Target

FOLLOWED = [
    dg.AssetKey(name.split("/"))
    for name in ("silver/visits", "silver/visits_enriched", "gold/visits_cube_daily", "gold/user_activity")
]
TICK = timedelta(seconds=30)


class Platform:
    """An instance, and what sensor and conditions remember between their ticks."""

    def __init__(self, instance: dg.DagsterInstance, landing: Path) -> None:
        self.instance, self.landing = instance, landing
        self.graph = defs.resolve_asset_graph()
        self.sensor_cursor: str | None = None
        self.cursor: Any = None

    def live(self, moment: datetime) -> dict[str, list[str]]:
        """What is requested at the moment and by the ticks after it, by asset."""
        requested: defaultdict[str, set[str]] = defaultdict(set)
        while wanted := {**self.landed(moment), **self.outdated(moment)}:
            for key, partitions in wanted.items():
                requested[key.to_user_string()] |= partitions
                self.compute(key, partitions)
            moment += TICK
        return {name: sorted(partitions) for name, partitions in sorted(requested.items())}

    def landed(self, moment: datetime) -> dict[dg.AssetKey, set[str]]:
        resources = {"landing": LandingZone(root=str(self.landing), visits_readiness="marker")}
        with dg.partition_loading_context(effective_dt=moment):
            context = dg.build_sensor_context(
                instance=self.instance, definitions=defs, cursor=self.sensor_cursor, resources=resources
            )
            result = visits_hour_landed(context)
            assert isinstance(result, dg.SensorResult)
            self.sensor_cursor = result.cursor
            hours = {key for request in result.run_requests or [] for key in self.keys_of(request)}
        return {VISITS: hours} if hours else {}

    def keys_of(self, request: dg.RunRequest) -> Iterable[str]:
        if request.partition_key:
            return [request.partition_key]
        bounds = dg.PartitionKeyRange(request.tags[RANGE_START], request.tags[RANGE_END])
        partitions = self.graph.get(VISITS).partitions_def
        assert partitions is not None
        return partitions.get_partition_keys_in_range(bounds)

    def outdated(self, moment: datetime) -> dict[dg.AssetKey, set[str]]:
        found = dg.evaluate_automation_conditions(
            defs,
            self.instance,
            asset_selection=dg.AssetSelection.assets(*FOLLOWED),
            cursor=self.cursor,
            evaluation_time=moment,
        )
        self.cursor = found.cursor
        wanted = {key: {str(each) for each in found.get_requested_partitions(key)} for key in FOLLOWED}
        return {key: partitions for key, partitions in wanted.items() if partitions}

    def compute(self, key: dg.AssetKey, partitions: Iterable[str]) -> None:
        """Record what a good run of the step would."""
        for partition in sorted(partitions):
            for written in self.graph.get(key).assets_def.keys:
                self.instance.report_runless_asset_event(dg.AssetMaterialization(written, partition=partition))
                for check in self.graph.get(written).check_keys:
                    if self.graph.get(check).partitions_def is not None:
                        self.judge(check, partition)

    def judge(self, check: dg.AssetCheckKey, partition: str) -> None:
        wanted = dg.AssetRecordsFilter(asset_key=check.asset_key, asset_partitions=[partition])
        at = self.instance.fetch_materializations(wanted, limit=1).records[0]
        evaluation = dg.AssetCheckEvaluation(
            asset_key=check.asset_key,
            check_name=check.name,
            passed=True,
            metadata={},
            partition=partition,
            blocking=self.graph.get(check).blocking,
            target_materialization_data=Target(storage_id=at.storage_id, run_id=at.run_id, timestamp=at.timestamp),
        )
        event = dg.DagsterEvent("ASSET_CHECK_EVALUATION", job_name="gate", event_specific_data=evaluation)
        self.instance.report_dagster_event(event, run_id=uuid4().hex)


def main(landing: Path, moments: dict[str, list[str]]) -> dict[str, dict[str, list[str]]]:
    """What was requested, by moment and asset."""
    told = {}
    with dg.DagsterInstance.ephemeral() as instance:
        platform = Platform(instance, landing)
        for moment, hours in moments.items():
            for hour in hours:
                folder = hour_folder(landing, datetime.fromisoformat(hour).replace(tzinfo=UTC))
                folder.mkdir(parents=True)
                (folder / PART).write_text("{}\n")
                (folder / MARKER).write_text("")
            told[moment] = platform.live(datetime.fromisoformat(moment).replace(tzinfo=UTC))
    return told


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), json.loads(sys.argv[2]))))
