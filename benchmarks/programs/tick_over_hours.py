"""Ticks of the sensor `visits_hour_landed` where all hours of the calendar have landed, and all but the newest were read.

DE_CALENDAR, DE_HOME and DAGSTER_HOME say where. Argument: how many ticks to time. Prints them as JSON: `wall` and `cpu`
seconds of each. The first tick, which fills the cursor, is not timed. Raises `ResultsDiffer` where the newest hour is not what
the first tick requests, or a later one requests something.
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict

import dagster as dg

from benchmarks.case import require_equal
from benchmarks.measure import timed
from de_assets.automation.triggers.landing import VISITS, visits_hour_landed
from de_assets.partitions import hourly
from de_assets.sources.landing import PART, hour_folder, incoming, publish
from de_assets.sources.landing_zone import LandingZone
from de_resources.settings import Settings


def main(ticks: str) -> None:
    """Land, read by name, tick."""
    hours = hourly.get_partition_keys()
    _land(hours)
    with dg.DagsterInstance.get() as instance:
        _record(instance, hours[:-1])
        first = _tick(instance, None)
        require_equal(
            "the first tick (requests)", [hours[-1]], [each.partition_key for each in first.run_requests or ()]
        )
        _record(instance, hours[-1:])

        def again() -> None:
            require_equal("a later tick (requests)", [], list(_tick(instance, first.cursor).run_requests or ()))

        print(json.dumps([asdict(timed(again)) for _ in range(int(ticks))]))


def _land(hours: Sequence[str]) -> None:
    landing = Settings.from_environment().landing
    with incoming(landing) as folder:
        for key in hours:
            prepared = folder / PART
            prepared.write_bytes(b"{}\n")
            publish(hour_folder(landing, hourly.time_window_for_partition_key(key).start), {PART: prepared})


def _record(instance: dg.DagsterInstance, hours: Sequence[str]) -> None:
    """The hours as read: what the sensor asks the instance about, without an engine."""
    for key in hours:
        instance.report_runless_asset_event(dg.AssetMaterialization(VISITS, partition=key))


def _tick(instance: dg.DagsterInstance, cursor: str | None) -> dg.SensorResult:
    context = dg.build_sensor_context(instance=instance, cursor=cursor, resources={"landing": LandingZone()})
    result = visits_hour_landed(context)
    assert isinstance(result, dg.SensorResult)
    return result


if __name__ == "__main__":
    main(*sys.argv[1:])
