"""External Trigger with all its parts: the broker, the daemon that dies, and the call by which an event is pushed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from deltalake import DeltaTable
from web_ui import LOCATION, Daemons, DagsterProcess, WebUI, until

from de_assets.sources.simulator import Announcements, World, announcements, feed_topic
from de_assets.sources.topics import FEATURES, TOPICS
from de_resources.kafka import KafkaBroker
from de_resources.local import LocalServices
from de_resources.settings import Settings

pytestmark = [pytest.mark.ui, pytest.mark.pattern("external_trigger")]

START = datetime(2024, 10, 10, 9, tzinfo=UTC)
SECONDS = 240
PUSHED = {
    "specversion": "1.0",
    "id": "p-1",
    "source": "/partner",
    "type": "blog.feature.released",
    "time": "2024-10-10T09:00:00Z",
    "dataschema": "feature-released/1",
    "data": {"feature": "embeds", "version": "2.0.0"},
}
PUSH = """mutation Push($event: RunConfigData!, $selector: JobOrPipelineSelector!) {
  launchRun(executionParams: {selector: $selector, runConfigData: $event}) {
    __typename
    ... on LaunchRunSuccess { run { runId } }
    ... on RunConfigValidationInvalid { errors { message } }
  } }"""
RUNS = """query Runs($filter: RunsFilter!) { runsOrError(filter: $filter) {
  ... on Runs { results { runId status tags { key value } } } } }"""
START_SENSOR = "mutation Start($selector: SensorSelector!) { startSensor(sensorSelector: $selector) { __typename } }"


@pytest.fixture(scope="module")
def broker(lakehouse: dict[str, str]) -> Iterator[KafkaBroker]:
    """The broker of the lake's home, with the platform's topics; it is stopped with the lake's engine."""
    services = LocalServices(Settings.from_environment(lakehouse))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DE_HOME", lakehouse["DE_HOME"])
        services.up(["kafka"], topics=TOPICS)
        yield KafkaBroker()


def test_each_event_of_the_topic_starts_one_run_also_when_the_daemon_dies(
    web: WebUI, daemon: DagsterProcess, daemons: Daemons, broker: KafkaBroker, lakehouse: dict[str, str]
) -> None:
    told = announcements(World(seed=5), [START + timedelta(days=day) for day in range(3)])
    # The first release comes with its copy, a plan, and two records that nobody can read.
    publish(broker, told, 0, 6)
    web.ask(START_SENSOR, selector={**LOCATION, "sensorName": "feature_released"})
    until(lambda: len(done(web, "features_release")) == 2, SECONDS, lambda: f"two runs end; {daemon.output()}")
    until(lambda: done(web, "features_set_aside"), SECONDS, lambda: f"a run for the unreadable; {daemon.output()}")

    daemon.kill()
    publish(broker, told, 0, 2)  # delivered once more
    publish(broker, told, 6, 7)
    again = daemons.another()
    until(lambda: len(done(web, "features_release")) == 3, SECONDS, lambda: f"the third run ends; {again.output()}")
    web.stop_automation()  # the daemon stays for other tests

    runs = [tags_of(run) for run in runs_of(web, "features_release")]
    assert sorted(tags["trigger/event"] for tags in runs) == [
        f"/blog/releases#{name}" for name in sorted(told.released)
    ]
    for tags in runs:
        envelope = json.loads(tags["trigger/envelope"])
        assert envelope.items() <= told.released[envelope["id"]].items()
        assert tags["trigger/version"] == "1"
        assert tags["trigger/origin"].startswith("features/0@")
        assert datetime.fromisoformat(tags["trigger/event_time"]) < datetime.fromisoformat(
            tags["trigger/processing_time"]
        )
    rows = {row["event_id"]: row for row in table(lakehouse, "features") if row["event_source"] == "/blog/releases"}
    assert {name: (row["feature"], row["version"]) for name, row in rows.items()} == {
        name: (event["data"]["feature"], event["data"]["version"]) for name, event in told.released.items()
    }
    dead = table(lakehouse, "features_dead_letter")
    assert [row["payload"] for row in sorted(dead, key=lambda row: row["topic_offset"])] == told.unreadable
    assert {row["field"] for row in dead} == {"dataschema", None}


@pytest.mark.usefixtures("broker")
def test_an_event_is_pushed_over_graphql(web: WebUI, daemon: DagsterProcess, lakehouse: dict[str, str]) -> None:
    first, again = push(web, PUSHED), push(web, PUSHED)
    both = [first["run"]["runId"], again["run"]["runId"]]
    until(
        lambda: all(status(web, run) == "SUCCESS" for run in both),
        SECONDS,
        lambda: f"both succeed; {[status(web, run) for run in both]} {daemon.output()}",
    )
    (row,) = (row for row in table(lakehouse, "features") if row["event_source"] == "/partner")
    assert (row["event_id"], row["feature"], row["rollout_percent"]) == ("p-1", "embeds", 100)
    tags = tags_of(found(web, both[0]))
    assert (tags["trigger/event"], tags["trigger/origin"]) == ("/partner#p-1", "push")


def test_what_is_pushed_has_to_be_an_event(web: WebUI) -> None:
    refused = push(web, {**PUSHED, "id": 7, "data": {"feature": "embeds"}})
    assert refused["__typename"] == "RunConfigValidationInvalid"
    said = " ".join(error["message"] for error in refused["errors"])
    assert "version" in said
    assert "event:id" in said

    newer = push(web, {**PUSHED, "dataschema": "feature-released/2"})
    assert newer["__typename"] == "RunConfigValidationInvalid"
    assert "event:dataschema" in newer["errors"][0]["message"]


def publish(broker: KafkaBroker, told: Announcements, first: int, last: int) -> None:
    feed_topic(Producer({**broker.client_config(), "log_level": 0}), FEATURES, told.messages[first:last])


def push(web: WebUI, event: dict[str, Any]) -> dict[str, Any]:
    config = {"ops": {"bronze__features": {"config": {"event": event}}}}
    answer: dict[str, Any] = web.ask(PUSH, event=config, selector={**LOCATION, "jobName": "features_release"})[
        "launchRun"
    ]
    return answer


def runs_of(web: WebUI, job: str) -> list[dict[str, Any]]:
    runs: list[dict[str, Any]] = web.ask(RUNS, filter={"pipelineName": job})["runsOrError"]["results"]
    return [run for run in runs if tags_of(run).get("trigger/origin") != "push"]


def done(web: WebUI, job: str) -> list[dict[str, Any]]:
    """The job's runs that ended; one that failed fails the test."""
    runs = runs_of(web, job)
    assert not [run for run in runs if run["status"] in ("FAILURE", "CANCELED")], runs
    return [run for run in runs if run["status"] == "SUCCESS"]


def found(web: WebUI, run: str) -> dict[str, Any]:
    (run_,) = web.ask(RUNS, filter={"runIds": [run]})["runsOrError"]["results"]
    result: dict[str, Any] = run_
    return result


def status(web: WebUI, run: str) -> str:
    return str(found(web, run)["status"])


def tags_of(run: dict[str, Any]) -> dict[str, str]:
    return {tag["key"]: tag["value"] for tag in run["tags"]}


def table(lakehouse: dict[str, str], name: str) -> list[dict[str, Any]]:
    folder = Path(lakehouse["DE_HOME"]) / "lake" / "bronze" / name
    rows: list[dict[str, Any]] = DeltaTable(str(folder)).to_pyarrow_table().to_pylist()
    return rows
