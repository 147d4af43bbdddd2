"""Clicks, jobs, backfills and automation under the real webserver and daemon: order, hold, release, pools, a red gate."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml
from waiting import PATIENCE
from web_ui import (
    BACKFILL,
    PROJECT,
    DagsterProcess,
    WebUI,
    code_server,
    repository_of,
    until,
    webserver,
)

from de_resources.run_queue.latency import SECONDS
from de_resources.run_queue.passing import let_pass
from de_resources.run_queue.places import WAITS_FOR

pytestmark = pytest.mark.ui

LOCATION = repository_of("ordered_location.py")
RUNS = """query Runs { runsOrError(limit: 50) { ... on Runs { results { runId status tags { key value } } } } }"""
LINE = dg.AssetKey(["line"])
STEPS = """query Steps($run: ID!) { runOrError(runId: $run) { ... on Run { status
    stepStats { stepKey status } eventConnection { events {
        ... on ExecutionStepFailureEvent { stepKey error { errorChain { error { message } } } }
        ... on LogMessageEvent { message }
        ... on MaterializationEvent { assetKey { path } } } } } } }"""


class Platform:
    """Webserver and daemon with the run queue of `dagster.yaml` over a location of a folder."""

    def __init__(
        self, root: Path, web: WebUI, instance: dg.DagsterInstance, environment: dict[str, str], workspace: str
    ) -> None:
        self.root, self.web, self.instance, self.environment = root, web, instance, environment
        self.workspace = workspace
        self.daemon: DagsterProcess | None = None

    def works(self) -> None:
        """From now on somebody takes runs from the queue."""
        if self.daemon is None:
            self.daemon = DagsterProcess(["dagster._daemon", "run", "-w", self.workspace], self.environment)

    def click(self, day: int, *assets: str) -> str:
        """Materialise a selection, which is the line where none is named."""
        return self.web.launch(LOCATION, *(assets or ("line",)), tags={"dagster/partition": key(day)})

    def job(self, day: int, name: str) -> str:
        """Launch a job of the location, all of it."""
        return self.web.launch(LOCATION, job=name, tags={"dagster/partition": key(day)})

    def backfill(self, *days: int, asset: str = "line") -> None:
        params = {"assetSelection": [{"path": [asset]}], "partitionNames": [key(day) for day in days]}
        launched = self.web.ask(BACKFILL, params=params)["launchPartitionBackfill"]
        assert launched["__typename"] == "LaunchBackfillSuccess", launched

    def automate(self, day: int, asset: str = "line") -> None:
        """A sensor asks for the day."""
        (self.root / "code" / f"ask-{asset}-{day:02d}").touch()

    def runs(self) -> dict[str, list[tuple[str, dict[str, str]]]]:
        """By day, the status and the tags of its runs, newest first: for whoever looks again and again."""
        return by_day((run.status.value, dict(run.tags)) for run in self.instance.get_runs(limit=50))

    def shown(self) -> dict[str, list[tuple[str, dict[str, str]]]]:
        """The same as the UI shows it."""
        runs = self.web.ask(RUNS)["runsOrError"]["results"]
        return by_day((run["status"], {tag["key"]: tag["value"] for tag in run["tags"]}) for run in runs)

    def until(self, condition: Any) -> None:
        said = self.daemon.output if self.daemon else lambda: "nothing, for there is none"
        until(condition, PATIENCE, lambda: f"{self.runs()}; told: {self.told()}; the daemon said: {said()}")

    def told(self) -> list[str]:
        told = self.root / "code" / "told"
        return told.read_text().split("\n")[:-1] if told.exists() else []


def key(day: int) -> str:
    return f"2026-01-{day:02d}"


def by_day(runs: Iterable[tuple[str, dict[str, str]]]) -> dict[str, list[tuple[str, dict[str, str]]]]:
    found: dict[str, list[tuple[str, dict[str, str]]]] = {}
    for status, tags in runs:
        found.setdefault(tags["dagster/partition"], []).append((status, tags))
    return found


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    tmp_path = tmp_path_factory.mktemp("queue")
    (tmp_path / "code").mkdir()
    (tmp_path / "dagster").mkdir()
    location = tmp_path / "code" / "ordered_location.py"
    shutil.copy(PROJECT / "tests" / "faults" / location.name, location)
    shutil.copy(PROJECT / "dagster.yaml", tmp_path / "dagster")
    places = {"DE_HOME": tmp_path, "DAGSTER_HOME": tmp_path / "dagster"}
    environment = {**os.environ, **{name: str(place) for name, place in places.items()}}
    # The instance is made before the webserver starts: two processes at once cannot make it.
    with (
        dg.DagsterInstance.from_config(str(tmp_path / "dagster")) as instance,
        code_server(location, environment) as workspace,
        webserver(["-w", workspace], environment) as web,
    ):
        platform = Platform(tmp_path, web, instance, environment, workspace)
        yield platform
        if platform.daemon is not None:
            platform.daemon.stop()


@pytest.mark.pattern("single_runner")
def test_runs_of_all_kinds_go_in_order_wait_for_what_failed_and_pass_it_with_a_reason(
    platform: Platform,
) -> None:
    configured = yaml.safe_load((platform.root / "dagster" / "dagster.yaml").read_text())
    assert configured["run_coordinator"]["class"] == "QueueWithTurns"
    (platform.root / "code" / "fails-04").touch()
    platform.backfill(5, 4)
    for day in (3, 1, 2):
        platform.click(day)
    platform.works()  # with all of it in the queue: a person's clicks are seconds apart, and the daemon looks every second
    platform.until(lambda: "end 03" in platform.told())
    assert platform.told()[:6] == ["begin 01", "end 01", "begin 02", "end 02", "begin 03", "end 03"]

    platform.until(lambda: "failed" in waits_for(platform, 5))
    last = platform.click(7)
    platform.until(lambda: "failed" in waits_for(platform, 7))
    platform.automate(6)
    platform.until(lambda: "failed" in waits_for(platform, 6))
    shown = platform.shown()
    assert shown[key(5)][0][1][WAITS_FOR].startswith(f"{key(4)}, which failed")
    assert [shown[key(day)][0][0] for day in (4, 5, 6, 7)] == ["FAILURE", *["QUEUED"] * 3]

    let_pass(platform.instance, ["line"], "line", key(4), "the source of that day is lost")
    platform.until(lambda: platform.runs()[key(7)][0][0] == "SUCCESS")
    assert platform.told()[6:] == [
        "begin 04",
        *(f"{what} {day:02d}" for day in (5, 6, 7) for what in ("begin", "end")),
    ]
    record = platform.instance.get_run_record_by_id(last)
    assert record is not None
    newest = platform.instance.get_latest_materialization_event(LINE)
    assert newest is not None
    assert newest.asset_materialization is not None
    told = newest.asset_materialization.metadata[SECONDS].value
    assert told == pytest.approx(record.start_time - record.create_timestamp.timestamp(), abs=0.1)
    assert told > 2, "it has waited for others"


@pytest.mark.pattern("concurrent_runner")
def test_a_pool_holds_for_a_job_clicks_a_backfill_and_automation_together(platform: Platform) -> None:
    platform.works()
    before = len(platform.told())
    platform.job(14, "load")
    platform.click(15, "landed")
    platform.backfill(11, 12, 13, asset="landed")
    platform.automate(16, "landed")

    def under_way() -> int:
        words = platform.told()[before:]
        return sum(word.startswith("landing") - word.startswith("landed") for word in words)

    def are(status: str) -> set[int]:
        """The days whose run is in this state."""
        runs = platform.runs()
        return {day for day in range(11, 19) if key(day) in runs and runs[key(day)][0][0] == status}

    platform.until(lambda: (under_way(), len(are("QUEUED"))) == (3, 3))
    assert are("STARTED") > {14, 15}, "a job and a click came first: both are counted"
    platform.job(17, "load")
    platform.click(18, "beside")
    platform.until(lambda: 18 in are("SUCCESS"))
    assert (under_way(), len(are("QUEUED"))) == (3, 4), "the queue was looked at, and the job waits as well"
    for day in range(11, 18):
        (platform.root / "code" / f"go-{day}").touch()
    platform.until(lambda: are("SUCCESS") == {*range(11, 19)})
    number, most = 0, 0
    for word in platform.told()[before:]:
        number += word.startswith("landing") - word.startswith("landed")
        most = max(most, number)
    assert (number, most) == (0, 3)


@pytest.mark.pattern("aligned_fan_in")
def test_of_one_run_a_red_gate_stops_who_needs_its_promise_and_the_ui_says_so(platform: Platform) -> None:
    """`counted` is not unique: its sum needs that and is not computed, nor what lies behind; its sketch does not."""
    platform.works()
    (platform.root / "code" / "unique-21").touch()
    run = platform.click(21, "counted", "summed", "reported", "sketched")

    platform.until(lambda: platform.runs()[key(21)][0][0] in ("SUCCESS", "FAILURE"))
    ended = platform.web.ask(STEPS, run=run)["runOrError"]
    assert ended["status"] == "FAILURE", "something that it was for was not computed"
    steps = {step["stepKey"]: step["status"] for step in ended["stepStats"]}
    assert (steps["summed"], steps["sketched"]) == ("FAILURE", "SUCCESS")
    events = ended["eventConnection"]["events"]
    (failed,) = [event for event in events if "error" in event]
    assert failed["stepKey"] == "summed"
    (why,) = [each["error"]["message"] for each in failed["error"]["errorChain"]]
    assert f"`summed` was not computed, for what it reads did not pass ({key(21)}: counted {key(21)}, unique" in why
    assert {event["assetKey"]["path"][0] for event in events if "assetKey" in event} == {"counted", "sketched"}
    assert "reported" not in steps, "it reads the sum, and was not run"
    assert "Dependencies for step reported failed: ['summed']. Not executing." in [
        event.get("message") for event in events
    ]


def waits_for(platform: Platform, day: int) -> str:
    """What the day's newest run says that it waits for; nothing while the daemon has not looked at it."""
    found = platform.runs().get(key(day))
    return found[0][1].get(WAITS_FOR, "") if found else ""
