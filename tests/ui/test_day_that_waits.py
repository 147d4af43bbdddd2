"""Days of 24 hours under the real webserver and daemon: one waits for the hour that failed, a report goes out without it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.scheduler.instigation import InstigatorState, InstigatorStatus, InstigatorTick, TickStatus
from web_ui import (
    METADATA,
    DagsterProcess,
    WebUI,
    code_server,
    entry,
    looks,
    repository_of,
    until,
    webserver,
    wind,
)

pytestmark = pytest.mark.ui

LOCATION = Path(__file__).with_name("gathering_location.py")
INSTANCE = """
telemetry: {enabled: false}
run_launcher: {module: de_resources.launcher, class: ForkingRunLauncher}
run_coordinator: {module: dagster._core.run_coordinator, class: QueuedRunCoordinator, config: {dequeue_interval_seconds: 1}}
compute_logs: {module: dagster._core.storage.noop_compute_log_manager, class: NoOpComputeLogManager}
"""
SECONDS = 120.0
SENSORS = ("cascade", "report_due")
FIRST, SECOND, THIRD, FOURTH = "2026-01-05", "2026-01-06", "2026-01-07", "2026-01-08"
MADE = "assetMaterializations(partitions: $partitions) { partition " + METADATA + " }"
TOLD = "assetObservations(partitions: $partitions) { description " + METADATA + " }"
VERDICTS = """query Verdicts($key: AssetKeyInput!, $partition: String!) { assetCheckExecutions(
    assetKey: $key, checkName: "inputs_are_complete", partition: $partition, limit: 9) {
    evaluation { success severity description } } }"""
RUN = """query Run($id: ID!) { runOrError(runId: $id) { ... on Run { status } } }"""


def hour(day: str, number: int) -> str:
    return f"{day}-{number:02d}:00"


class World:
    """Webserver and daemon over the location, and the clock of its deadlines."""

    def __init__(self, root: Path, web: WebUI, daemon: DagsterProcess, instance: dg.DagsterInstance) -> None:
        self.root, self.web, self.daemon, self.instance = root, web, daemon, instance

    def wind(self, moment: str) -> None:
        wind(self.root, datetime.fromisoformat(moment).replace(tzinfo=UTC))

    def click(self, first: str, last: str) -> str:
        """Launch hours in the UI; how the run ended."""
        ends = {"dagster/asset_partition_range_start": first, "dagster/asset_partition_range_end": last}
        named = {"dagster/partition": first} if first == last else ends
        run = self.web.launch(repository_of(LOCATION.name), "silver/sales", tags=named)
        self.until(lambda: (found := self.instance.get_run_by_id(run)) is not None and found.is_finished)
        return self.status(run)

    def status(self, run: str) -> str:
        status: str = self.web.ask(RUN, id=run)["runOrError"]["status"]
        return status

    def made(self, asset: str, day: str) -> list[dict[str, Any]]:
        """The day's materialisations, newest first."""
        found: list[dict[str, Any]] = self.web.asset(asset, MADE, partitions=[day])["assetMaterializations"]
        return found

    def told(self, asset: str, day: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.web.asset(asset, TOLD, partitions=[day])["assetObservations"]
        return found

    def until_told(self, asset: str, day: str, named: str) -> None:
        """Wait until the day's page says so. What is looked at again and again is the instance; the page is read once."""
        wanted = dg.AssetRecordsFilter(dg.AssetKey.from_user_string(asset), asset_partitions=[day])

        def says() -> bool:
            found = (record.asset_observation for record in self.instance.fetch_observations(wanted, 9).records)
            return any((each.description or "").startswith(named) for each in found if each)

        self.until(says)
        assert any(each["description"].startswith(named) for each in self.told(asset, day))

    def until_made(self, asset: str, day: str) -> None:
        key = dg.AssetKey.from_user_string(asset)
        self.until(lambda: day in self.instance.get_materialized_partitions(key))

    def verdicts(self, asset: str, day: str) -> list[dict[str, Any]]:
        answer = self.web.ask(VERDICTS, key={"path": asset.split("/")}, partition=day)["assetCheckExecutions"]
        return [each["evaluation"] for each in answer if each["evaluation"]]

    def until_judged(self, asset: str, day: str, times: int) -> None:
        """Wait for so many verdicts on the day, as `until_told` does."""
        check = dg.AssetCheckKey(dg.AssetKey.from_user_string(asset), "inputs_are_complete")

        def judged() -> int:
            found = self.instance.event_log_storage.get_asset_check_execution_history(check, limit=99)
            verdicts = (each.evaluation for each in found)
            return sum(isinstance(each, dg.AssetCheckEvaluation) and each.partition == day for each in verdicts)

        self.until(lambda: judged() == times)

    def asked_for(self, asset: str, day: str) -> int:
        """How many runs the conditions asked for that compute this day of the asset."""
        tags = {"dagster/from_automation_condition": "true", "dagster/partition": day}
        key = dg.AssetKey.from_user_string(asset)
        return sum(key in (run.asset_selection or ()) for run in self.instance.get_runs(dg.RunsFilter(tags=tags)))

    @contextmanager
    def unwatched(self, sensor: str) -> Iterator[None]:
        """Nobody looks meanwhile.

        An hour that ends while the conditions are looked at is there in that look and news in the next one, which asks for
        a run too many (`_overtaken`).
        """
        self._set(sensor, InstigatorStatus.STOPPED)
        self.until(lambda: self._newest_look(sensor).status != TickStatus.STARTED)
        yield
        self._set(sensor, InstigatorStatus.RUNNING)

    def _set(self, sensor: str, status: InstigatorStatus) -> None:
        self.instance.update_instigator_state(self._state(sensor).with_status(status))

    def _state(self, sensor: str) -> InstigatorState:
        (found,) = (each for each in self.instance.all_instigator_state() if each.name == sensor)
        return found

    def _newest_look(self, sensor: str) -> InstigatorTick:
        state = self._state(sensor)
        (newest,) = self.instance.get_ticks(state.instigator_origin_id, state.selector_id, limit=1)
        return newest

    def watch(self, sensor: str) -> Callable[[], None]:
        """Waits, when it is called, until a look at what is there now has begun and ended."""
        before = looks(self.instance)[sensor]
        return lambda: self.until(lambda: looks(self.instance)[sensor] >= before + 2)

    def look_again(self, sensor: str) -> None:
        """Wait for such a look."""
        self.watch(sensor)()

    def report_after_its_deadline(self, day: str) -> tuple[dict[str, Any], str]:
        """The report of a day that lacks something, and the warning."""
        self.until_judged("gold/report", day, 1)
        (made,) = self.made("gold/report", day)
        (warned,) = self.verdicts("gold/report", day)
        assert (warned["success"], warned["severity"]) == (False, "WARN")
        return made, warned["description"]

    def until(self, condition: Callable[[], object]) -> None:
        until(condition, SECONDS, self.daemon.output)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    root = tmp_path_factory.mktemp("gathering")
    (root / "dagster").mkdir()
    (root / "dagster" / "dagster.yaml").write_text(INSTANCE)
    places = {"DE_HOME": root, "DAGSTER_HOME": root / "dagster", "GATHERING_ROOT": root}
    environment = {**os.environ, **{name: str(place) for name, place in places.items()}}
    (root / "clock").write_text("2026-01-05T12:00:00+00:00")
    # The instance is made before the others start: two processes at once cannot make it.
    with (
        dg.DagsterInstance.from_config(str(root / "dagster")) as instance,
        code_server(LOCATION, environment) as workspace,
        webserver(["-w", workspace], environment) as web,
        DagsterProcess(["dagster._daemon", "run", "-w", workspace], environment) as daemon,
    ):
        gathering = World(root, web, daemon, instance)
        # Before the daemon's first look a sensor has no state, and nobody can stop it.
        gathering.until(lambda: all(looks(instance).get(sensor) for sensor in SENSORS))
        yield gathering


@pytest.mark.pattern("aligned_fan_in", "unaligned_fan_in")
def test_a_day_waits_for_its_failed_hour_and_its_report_goes_out_without_it_until_that_one_was_rerun_alone(
    world: World,
) -> None:
    late = hour(FIRST, 23)
    (world.root / "breaks").write_text(late)
    world.wind(f"{SECOND}T02:59:00")
    assert world.click(late, late) == "FAILURE"
    assert world.click(hour(FIRST, 0), hour(FIRST, 22)) == "SUCCESS"
    look = world.watch("report_due")
    world.until_told("gold/per_day", FIRST, f"Waits for silver/sales {late}: its last run failed")
    look()
    assert world.made("gold/report", FIRST) == [], "the hour may still come"
    world.wind(f"{SECOND}T03:01:00")
    made, warning = world.report_after_its_deadline(FIRST)
    assert entry(made, "is_approximate")["boolValue"] is True
    assert json.loads(entry(made, "missing_inputs")["jsonString"]) == {late: "never computed"}
    assert f"{late} (never computed)" in warning
    assert world.made("gold/per_day", FIRST) == [], "23 hours are no day, whatever the time is"

    (world.root / "breaks").unlink()
    with world.unwatched("cascade"):
        assert world.click(late, late) == "SUCCESS"
    world.until_made("gold/per_day", FIRST)
    look = world.watch("cascade")
    world.until_judged("gold/report", FIRST, 2)
    look()
    (day,) = world.made("gold/per_day", FIRST)
    assert entry(day, "completeness")["floatRepr"] == "1.0"
    assert [each["success"] for each in world.verdicts("gold/per_day", FIRST)] == [True]
    assert world.asked_for("gold/per_day", FIRST) == 1, "once, with its last hour"
    newest, _ = world.made("gold/report", FIRST)
    assert entry(newest, "is_approximate")["boolValue"] is False
    assert json.loads(entry(newest, "missing_inputs")["jsonString"]) == {}
    assert world.verdicts("gold/report", FIRST)[0]["success"] is True


@pytest.mark.pattern("aligned_fan_in")
def test_a_red_gate_holds_back_who_needs_what_it_guards_and_not_the_sibling(world: World) -> None:
    """Of a day one hour has rows twice: its buyers are counted, its sum waits until the hour is mended."""
    twice = hour(THIRD, 5)
    (world.root / "rows_are_unique").write_text(twice)
    with world.unwatched("cascade"):
        world.click(hour(THIRD, 0), hour(THIRD, 23))
    world.until_made("gold/buyers", THIRD)
    named = f"Waits for silver/sales {twice}: a blocking check has not passed"
    world.until_told("gold/per_day", THIRD, named)
    world.look_again("cascade")
    assert world.made("gold/per_day", THIRD) == [], "it needs every promise"
    assert not any("blocking check" in each["description"] for each in world.told("gold/buyers", THIRD))

    (world.root / "rows_are_unique").unlink()
    with world.unwatched("cascade"):
        assert world.click(twice, twice) == "SUCCESS"
    world.until_made("gold/per_day", THIRD)
    assert world.asked_for("gold/per_day", THIRD) == 1

    (world.root / "rows_are_whole").write_text(twice)
    world.click(twice, twice)
    world.look_again("cascade")
    made = {asset: len(world.made(asset, THIRD)) for asset in ("gold/per_day", "gold/buyers")}
    assert made == {"gold/per_day": 1, "gold/buyers": 2}, (
        "buyers were made of the mended hour too, and not of the broken one"
    )


@pytest.mark.pattern("unaligned_fan_in")
def test_a_day_of_which_nothing_came_is_reported_at_its_deadline_as_well(world: World) -> None:
    world.click(hour(THIRD, 0), hour(THIRD, 0))
    world.wind("2026-01-09T02:59:00")
    world.look_again("report_due")
    assert world.made("gold/report", FOURTH) == [], "something may still come"
    world.wind("2026-01-09T03:01:00")
    made, warning = world.report_after_its_deadline(FOURTH)
    assert entry(made, "completeness")["floatRepr"] == "0.0"
    nothing = {hour(FOURTH, each): "never computed" for each in range(24)}
    assert json.loads(entry(made, "missing_inputs")["jsonString"]) == nothing
    assert "of 0% of its inputs" in warning
