"""A backfill that a person launches in the UI, over five hours of which one is bad, as the webserver and the daemon run it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from waiting import PATIENCE
from web_ui import PROJECT, DagsterProcess, WebUI, until, webserver

from de_assets.sources.landing import hour_folder, incoming, publish
from de_resources.local import LocalServices
from de_resources.settings import Settings

pytestmark = pytest.mark.ui

HOURS = [datetime(2024, 10, 10, 22, tzinfo=UTC) + timedelta(hours=n) for n in range(5)]
KEYS = [f"{hour:%Y-%m-%d-%H:00}" for hour in HOURS]
BAD = KEYS[3]
GOOD_DAY, DAY_OF_BAD = "2024-10-10", "2024-10-11"
BY_HOUR = [
    "bronze/visits_dead_letter",
    "bronze/visits",
    "silver/visits_late",
    "silver/visits",
    "silver/visits_enriched",
]
BY_DAY = [
    "gold/sessions_pending",
    "gold/sessions",
    "gold/visits_cube_daily",
    "gold/visitor_sketches_daily",
    "gold/user_activity",
]
BY_DAY += ["gold/daily_report", "serving/visits_csv", "serving/visits_export", "serving/page_counts"]
"""All days of a backfill in one run, or each in one of its own, as the asset declares it."""

LAUNCH = """mutation Launch($params: LaunchBackfillParams!) { launchPartitionBackfill(backfillParams: $params) {
    __typename ... on LaunchBackfillSuccess { backfillId } ... on PythonError { message } } }"""
BACKFILL = """query Backfill($id: String!) { partitionBackfillOrError(backfillId: $id) { ... on PartitionBackfill { status
    runs(limit: 50) { id status tags { key value } }
    assetBackfillData { assetBackfillStatuses { ... on AssetPartitionsStatusCounts {
      assetKey { path } numPartitionsTargeted numPartitionsMaterialized numPartitionsFailed } } } } } }"""
PARTITIONS = """assetPartitionStatuses { ... on TimePartitionStatuses { ranges { status startKey endKey } } }"""
VERDICTS = """query Verdicts($key: AssetKeyInput!, $partition: String!) { assetCheckExecutions(
    assetKey: $key, checkName: "dead_letters_do_not_prevail", partition: $partition, limit: 1) {
    status evaluation { description } } }"""
STEPS = """query Steps($id: ID!) { runOrError(runId: $id) { ... on Run { stepStats { stepKey status } } } }"""
ENDED = {"COMPLETED_SUCCESS", "COMPLETED_FAILED", "FAILED", "CANCELED"}


@pytest.fixture(scope="module")
def home() -> Iterator[dict[str, str]]:
    """The environment of a home with five landed hours that nothing was computed of, and its engine."""
    path = Path(tempfile.mkdtemp(prefix="de-ui-"))
    path.chmod(0o711)
    places = {"DE_HOME": path, "DE_JARS": Path(os.environ["DE_JARS"]), "DAGSTER_HOME": path / "dagster"}
    environment = {**os.environ, **{name: str(place) for name, place in places.items()}}
    (path / "dagster").mkdir()
    shutil.copyfile(PROJECT / "dagster.yaml", path / "dagster" / "dagster.yaml")
    log = path / "access.log"
    log.write_text("".join(line for hour in HOURS for line in lines(hour)))
    command = [str(Path(sys.executable).with_name("de")), "land", str(log)]
    done = subprocess.run(command, cwd=PROJECT, env=environment, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stdout + done.stderr
    services = LocalServices(Settings.from_environment(environment))
    services.up(["spark_connect"])
    try:
        yield environment
    finally:
        services.down()
        shutil.rmtree(path)


@contextmanager
def platform(home: Mapping[str, str]) -> Iterator[tuple[WebUI, DagsterProcess]]:
    """Webserver and daemon; nothing starts a run but the test."""
    workspace = ["-w", str(PROJECT / "workspace.yaml")]
    with webserver(workspace, home) as web:
        web.stop_automation()
        with DagsterProcess(["dagster._daemon", "run", *workspace], home) as daemon:
            yield web, daemon


def lines(hour: datetime) -> list[str]:
    """Five page views, ten minutes apart, of one visitor each."""
    moments = [hour + timedelta(minutes=10 * n) for n in range(5)]
    return [
        f'203.0.113.{n} - - [{at:%d/%b/%Y:%H:%M:%S} +0000] "GET /{at:%H%M} HTTP/1.1" 200 5 "-" "Lynx/2.8"\n'
        for n, at in enumerate(moments)
    ]


def replace(home: Mapping[str, str], content: bytes) -> None:
    """Land the bad hour again."""
    landing = Settings.from_environment(home).landing
    shutil.rmtree(hour_folder(landing, HOURS[3]))
    with incoming(landing) as prepared:
        (prepared / "one.json").write_bytes(content)
        publish(hour_folder(landing, HOURS[3]), {"one.json": prepared / "one.json"})


def visits() -> bytes:
    hour = HOURS[3]
    told = {"event_time": hour.isoformat(), "user_id": "u", "page": "/", "context": {"user": {"ip": "203.0.113.1"}}}
    return b"\n".join(json.dumps({"visit_id": f"again-{n}", **told}).encode() for n in range(5))


def backfill(web: WebUI, daemon: DagsterProcess) -> dict[str, object]:
    """Launch all of it, as the UI does for what is selected in the graph, and wait until the daemon calls it ended."""
    ranges = {**dict.fromkeys(BY_HOUR, (KEYS[0], KEYS[-1])), **dict.fromkeys(BY_DAY, (GOOD_DAY, DAY_OF_BAD))}
    chosen = [
        {"assetKey": {"path": name.split("/")}, "partitions": {"range": {"start": first, "end": last}}}
        for name, (first, last) in ranges.items()
    ]
    launched = web.ask(LAUNCH, params={"partitionsByAssets": chosen})["launchPartitionBackfill"]
    assert launched["__typename"] == "LaunchBackfillSuccess", launched

    def seen() -> dict[str, object]:
        found: dict[str, object] = web.ask(BACKFILL, id=launched["backfillId"])["partitionBackfillOrError"]
        return found

    until(lambda: seen()["status"] in ENDED, 420, lambda: f"the backfill ends: {seen()}; {daemon.output()}")
    return seen()


def counts(found: dict[str, object]) -> dict[str, tuple[int, int]]:
    """Materialised and failed partitions by asset."""
    data = found["assetBackfillData"]
    assert isinstance(data, dict)
    return {
        "/".join(each["assetKey"]["path"]): (each["numPartitionsMaterialized"], each["numPartitionsFailed"])
        for each in data["assetBackfillStatuses"]
    }


def writers(web: WebUI, found: dict[str, object]) -> dict[str, str]:
    """The steps of `serving/page_counts` as the views of the backfill's runs show them."""
    runs, prefix = found["runs"], "serving__page_counts."
    assert isinstance(runs, list)
    stats = [each for run in runs for each in web.ask(STEPS, id=run["id"])["runOrError"]["stepStats"]]
    return {s["stepKey"].removeprefix(prefix): s["status"] for s in stats if s["stepKey"].startswith(prefix)}


def materialised(web: WebUI, name: str) -> set[str]:
    """What the asset's page shows as there."""
    found = web.asset(name, PARTITIONS)["assetPartitionStatuses"]["ranges"]
    keys = KEYS if name in BY_HOUR else [GOOD_DAY, DAY_OF_BAD]
    return {
        key
        for each in found
        if each["status"] == "MATERIALIZED"
        for key in keys
        if each["startKey"] <= key <= each["endKey"]
    }


@pytest.mark.pattern("exclusive_choice")
def test_a_backfill_over_a_bad_hour_goes_on_with_the_good_ones_and_a_second_one_completes(home: dict[str, str]) -> None:
    replace(home, b"\n".join([b"no visit at all"] * 40 + [visits()]))
    with platform(home) as (web, daemon):
        first = backfill(web, daemon)

        good = {*KEYS} - {BAD}
        for name in BY_HOUR[:2]:
            assert materialised(web, name) == {*KEYS}, "what is judged is there"
        for name in BY_HOUR[2:]:
            assert materialised(web, name) == good, name
        for name in BY_DAY:
            assert materialised(web, name) == {GOOD_DAY}, f"{name}: a day with a bad hour waits, the other one goes on"
        runs = first["runs"]
        assert isinstance(runs, list)
        assert {run["status"] for run in runs} == {"SUCCESS"}, "nothing was stopped for the bad hour"
        judged = {
            key: web.ask(VERDICTS, key={"path": ["bronze", "visits"]}, partition=key)["assetCheckExecutions"][0]
            for key in KEYS
        }
        assert {key: each["status"] for key, each in judged.items()} == {
            **dict.fromkeys(good, "SUCCEEDED"),
            BAD: "FAILED",
        }
        assert "40" in judged[BAD]["evaluation"]["description"], "red, with its reason"
        assert first["status"] == "COMPLETED_FAILED"
        assert counts(first) == {
            **dict.fromkeys(BY_HOUR[:2], (5, 0)),
            **dict.fromkeys(BY_HOUR[2:], (4, 1)),
            **dict.fromkeys(BY_DAY, (1, 1)),
        }

        done = {"choose_writer": "SUCCESS", "legacy_writer": "SUCCESS", "written": "SUCCESS"}
        assert writers(web, first) == {**done, "new_writer": "SKIPPED"}, "the day since the cut-over waits"

        replace(home, visits())
        second = backfill(web, daemon)
        assert second["status"] == "COMPLETED_SUCCESS", counts(second)
        assert counts(second) == {**dict.fromkeys(BY_HOUR, (5, 0)), **dict.fromkeys(BY_DAY, (2, 0))}
        assert materialised(web, BY_DAY[0]) == {GOOD_DAY, DAY_OF_BAD}
        assert writers(web, second) == {**done, "new_writer": "SUCCESS"}, "each for its side of the cut-over"
