"""A backfill over days before and since a cut-over, by the real webserver and daemon: each writer has its side.

A long proof: one day from the UI, of which the run view shows one writer as skipped, is in `ui/test_webserver_runs.py`.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from waiting import PATIENCE
from web_ui import BACKFILL, DagsterProcess, WebUI, until, webserver

from de_assets.contracts.page_counts import CUT_OVER

pytestmark = [pytest.mark.ui, pytest.mark.pattern("exclusive_choice")]

LOCATION = Path(__file__).with_name("cut_over_location.py")
INSTANCE = """
telemetry: {enabled: false}
run_launcher: {module: de_resources.launcher, class: ForkingRunLauncher}
run_coordinator: {module: dagster._core.run_coordinator, class: QueuedRunCoordinator, config: {dequeue_interval_seconds: 1}}
compute_logs: {module: dagster._core.storage.noop_compute_log_manager, class: NoOpComputeLogManager}
"""
FIRST_NEW = datetime.fromisoformat(CUT_OVER).replace(tzinfo=UTC)
DAYS = [f"{FIRST_NEW + timedelta(days=day):%Y-%m-%d}" for day in (-2, -1, 0, 1)]
VIEWS = [  # day, visitor, page, robot
    *((-2, "a", "/x", False), (-1, "a", "/x", False), (-1, "a", "/x", True), (-1, "b", "/y", False)),
    *((0, "a", "/x", False), (0, "b", "/x", True), (0, "b", "/x", True), (1, "c", "/y", False)),
]
BY_HAND = {
    DAYS[0]: [{"page": "/x", "views": "1"}],
    DAYS[1]: [{"page": "/x", "views": "2"}, {"page": "/y", "views": "1"}],
    DAYS[2]: [{"page": "/x", "views": "3", "visitors": "2", "bot_views": "2"}],
    DAYS[3]: [{"page": "/y", "views": "1", "visitors": "1", "bot_views": "0"}],
}
RUNS = """{ runsOrError(limit: 20) { ... on Runs { results { runId status stepStats { stepKey status } } } } }"""
MADE = "assetMaterializations(limit: 50) { partition metadataEntries { label ... on TextMetadataEntry { text } } }"


class Platform:
    """Webserver and daemon over the location."""

    def __init__(self, root: Path, web: WebUI, daemon: DagsterProcess) -> None:
        self.root, self.web, self.daemon = root, web, daemon

    def backfill(self, *days: str, runs: int = 1) -> list[dict[str, Any]]:
        """Launch it in the UI; all runs that there are, once they are so many and have ended."""
        params = {"assetSelection": [{"path": ["serving", "page_counts"]}], "partitionNames": list(days)}
        launched = self.web.ask(BACKFILL, params=params)["launchPartitionBackfill"]
        assert launched["__typename"] == "LaunchBackfillSuccess", launched
        until(
            lambda: len(self.runs()) == runs and self.over(), PATIENCE, lambda: f"{self.runs()}; {self.daemon.output()}"
        )
        return self.runs()

    def over(self) -> bool:
        return all(run["status"] in ("SUCCESS", "FAILURE") for run in self.runs())

    def runs(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.web.ask(RUNS)["runsOrError"]["results"]
        return found

    def told(self) -> list[tuple[str, str]]:
        """Each day that was told of, with its writer."""
        made = self.web.asset("serving/page_counts", MADE)["assetMaterializations"]
        writer = [{e["label"]: e.get("text") for e in each["metadataEntries"]}["writer"] for each in made]
        return sorted((each["partition"], who) for each, who in zip(made, writer, strict=True))

    def read(self) -> dict[str, list[dict[str, str]]]:
        found = {}
        for path in sorted((self.root / "lake" / "serving" / "page_counts").glob("*.csv")):
            with path.open(newline="") as lines:
                found[path.stem] = list(csv.DictReader(lines))
        return found


@pytest.fixture
def platform(lakehouse: dict[str, str], tmp_path: Path) -> Iterator[Platform]:
    """The engine is that of the other tests' lake."""
    (tmp_path / "dagster").mkdir()
    (tmp_path / "dagster" / "dagster.yaml").write_text(INSTANCE)
    hours = [FIRST_NEW + timedelta(days=day, hours=9) for day, *_ in VIEWS]
    columns: dict[str, Any] = {
        "visit_id": [f"v{n}" for n in range(len(VIEWS))],
        **{name: [view[n] for view in VIEWS] for n, name in enumerate(("user_id", "page", "is_bot"), 1)},
        "event_hour": pa.array(hours, pa.timestamp("us", tz="UTC")),
    }
    write_deltalake(str(tmp_path / "lake/silver/visits"), pa.table(columns), partition_by=["event_hour"])
    calendar = f"{DAYS[0]}T00/{FIRST_NEW + timedelta(days=2):%Y-%m-%dT%H}"
    places = {"DAGSTER_HOME": str(tmp_path / "dagster"), "LAKE_ROOT": str(tmp_path / "lake"), "DE_CALENDAR": calendar}
    environment = {**lakehouse, **places}
    code = ["-f", str(LOCATION)]
    with (
        webserver(code, environment) as web,
        DagsterProcess(["dagster._daemon", "run", *code], environment) as daemon,
    ):
        yield Platform(tmp_path, web, daemon)


def test_a_backfill_across_the_cut_over_takes_both_writers_each_for_its_side(platform: Platform) -> None:
    (run,) = platform.backfill(*DAYS)
    steps = {each["stepKey"].rpartition(".")[2]: each["status"] for each in run["stepStats"]}
    assert run["status"] == "SUCCESS", steps
    writers = ("choose_writer", "legacy_writer", "new_writer", "written")
    assert {name: steps[name] for name in writers} == dict.fromkeys(writers, "SUCCESS")
    assert platform.read() == BY_HAND
    sides = zip(DAYS, ["legacy_writer"] * 2 + ["new_writer"] * 2, strict=True)
    assert platform.told() == sorted(sides), "each day once"

    (second,) = [each for each in platform.backfill(DAYS[0], DAYS[1], runs=2) if each["runId"] != run["runId"]]
    steps = {each["stepKey"].rpartition(".")[2]: each["status"] for each in second["stepStats"]}
    assert (steps["legacy_writer"], steps["new_writer"]) == ("SUCCESS", "SKIPPED"), "a backfill of one side takes one"
    assert platform.read() == BY_HAND
