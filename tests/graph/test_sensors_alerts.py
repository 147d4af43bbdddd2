"""The sensor `alerts`: bad news arrives once, in order, without anybody's data, over restarts and dead sinks."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from de_assets.automation.alerting.alert import Alert, redacted
from de_assets.automation.alerting.sensor import alerts
from de_assets.automation.alerting.sinks import AlertSink, LogAlertSink, WebhookAlertSink
from de_resources.errors import PermanentError, TransientError

days = dg.DailyPartitionsDefinition("2024-10-10", end_date="2024-10-14")


@dg.asset(key=["gold", "sales"], partitions_def=days, backfill_policy=dg.BackfillPolicy.single_run())
def sales(context: dg.AssetExecutionContext) -> None:
    if "breaks" in context.run.tags:
        raise ValueError("no rate for 'Jane Roe' <jane.roe@example.org> at 203.0.113.9\nsecond line: jane")


@dg.asset_check(asset=sales)
def sales_add_up(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
    passed = not context.run.tags.get("wrong")
    return dg.AssetCheckResult(passed=passed, metadata={"example": "jane.roe@example.org"})


class Town:
    """An instance in which runs happen, and the sensor with its cursor and sink."""

    def __init__(self, instance: dg.DagsterInstance, sink: AlertSink) -> None:
        self.instance, self.sink, self.cursor = instance, sink, None

    def run(self, key: str = "2024-10-10", **tags: str) -> str:
        definitions = [sales, sales_add_up]
        return dg.materialize(
            definitions, partition_key=key, tags=tags, instance=self.instance, raise_on_error=False
        ).run_id

    def tick(self) -> None:
        with dg.build_sensor_context(
            instance=self.instance, cursor=self.cursor, resources={"alert_sink": self.sink}
        ) as context:
            result = alerts(context)
        assert isinstance(result, dg.SensorResult)
        self.cursor = result.cursor


class FlakySink(AlertSink):
    """A log that is away once it holds so many alerts."""

    path: str
    works_for: int

    def deliver(self, alert: Alert) -> None:
        log = LogAlertSink(path=self.path)
        if len(lines(log)) >= self.works_for:
            raise TransientError("The sink is away.")
        log.deliver(alert)


@pytest.fixture
def log(tmp_path: Path) -> LogAlertSink:
    return LogAlertSink(path=str(tmp_path / "logs" / "alerts.jsonl"))


@pytest.fixture
def town(log: LogAlertSink) -> Iterator[Town]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield Town(instance, log)


def lines(log: LogAlertSink) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.file.read_text().splitlines()] if log.file.exists() else []


def test_good_runs_are_no_news(town: Town, log: LogAlertSink) -> None:
    town.run()
    town.tick()
    assert lines(log) == []


def test_failed_check_of_a_successful_run(town: Town, log: LogAlertSink) -> None:
    run = town.run("2024-10-11", wrong="1")
    town.tick()
    [alert] = lines(log)
    assert town.instance.get_run_by_id(run).is_success
    assert (alert["kind"], alert["severity"], alert["run_id"]) == ("check_failed", "ERROR", run)
    assert (alert["assets"], alert["check"], alert["partitions"]) == (["gold/sales"], "sales_add_up", ["2024-10-11"])
    assert alert["text"] == f"ERROR: Check `sales_add_up` failed for gold/sales [2024-10-11], run {run}"


def test_failed_run_names_class_and_redacted_first_line(town: Town, log: LogAlertSink) -> None:
    run = town.run(breaks="1")
    town.tick()
    [alert] = lines(log)
    assert (alert["kind"], alert["run_id"], alert["step"]) == ("run_failed", run, "gold__sales")
    assert (alert["error"], alert["partitions"]) == ("ValueError", ["2024-10-10"])
    assert (alert["assets"], alert["message"]) == (["gold/sales"], "no rate for ••• <•••> at •••")
    text = log.file.read_text()
    assert not any(secret in text for secret in ("Jane", "jane", "example.org", "203.0.113.9", "second line"))


@pytest.mark.parametrize(("will_retry", "severity"), [("true", "WARN"), ("false", "ERROR"), (None, "ERROR")])
def test_a_failed_run_that_is_started_again_is_a_warning(
    town: Town, log: LogAlertSink, will_retry: str | None, severity: str
) -> None:
    """Dagster's tag on a run that failed and that the instance starts again by itself."""
    tags = {"dagster/will_retry": will_retry} if will_retry else {}
    town.run(breaks="1", **tags)
    town.tick()
    assert [(alert["kind"], alert["severity"]) for alert in lines(log)] == [("run_failed", severity)]


def test_every_run_is_told_once_over_restarts(town: Town, log: LogAlertSink) -> None:
    runs = [town.run(key, wrong="1") for key in ("2024-10-10", "2024-10-11")]
    town.tick()
    town.tick()
    runs.append(town.run("2024-10-12", breaks="1"))
    town.tick()
    assert [alert["run_id"] for alert in lines(log)] == runs


def test_tags_added_after_the_end_are_no_news(town: Town, log: LogAlertSink) -> None:
    run = town.run(wrong="1")
    town.tick()
    town.instance.add_run_tags(run, {"seen": "yes"})
    town.tick()
    assert len(lines(log)) == 1


def test_dead_sink_loses_nothing(town: Town, log: LogAlertSink) -> None:
    runs = [town.run(key, wrong="1") for key in ("2024-10-10", "2024-10-11", "2024-10-12")]
    town.sink = FlakySink(path=log.path, works_for=1)
    town.tick()  # the first is delivered, the second is not
    assert [alert["run_id"] for alert in lines(log)] == runs[:1]
    with pytest.raises(TransientError):
        town.tick()
    town.sink = log
    town.tick()
    assert [alert["run_id"] for alert in lines(log)] == runs


def test_crash_between_delivery_and_cursor_repeats_nothing_in_the_log(town: Town, log: LogAlertSink) -> None:
    town.run(wrong="1")
    town.tick()
    town.cursor = None
    town.tick()
    assert len(lines(log)) == 1


def test_many_runs_take_several_ticks(town: Town, log: LogAlertSink, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("de_assets.automation.alerting.sensor.RUNS_PER_TICK", 2)
    runs = [town.run(**tag) for tag in ({"wrong": "1"}, {"breaks": "1"}, {"wrong": "1"}, {}, {"breaks": "1"})]
    for _ in range(3):
        town.tick()
    assert [alert["run_id"] for alert in lines(log)] == [runs[0], runs[1], runs[2], runs[4]]


def test_keys_of_a_range_make_one_alert(town: Town, log: LogAlertSink) -> None:
    event = dg.DagsterEventType.ASSET_CHECK_EVALUATION.value
    run = town.run()
    for key in ("2024-10-12", "2024-10-11"):
        evaluation = dg.AssetCheckEvaluation(
            asset_key=sales.key, check_name="gate", passed=False, metadata={}, partition=key, blocking=True
        )
        town.instance.report_dagster_event(dg.DagsterEvent(event, "j", event_specific_data=evaluation), run_id=run)
    town.tick()
    [alert] = lines(log)
    assert (alert["check"], alert["partitions"], alert["partition_count"]) == ("gate", ["2024-10-11", "2024-10-12"], 2)


def test_line_after_a_torn_one_is_readable(town: Town, log: LogAlertSink) -> None:
    log.file.parent.mkdir(parents=True)
    log.file.write_text('{"id": "hal')
    town.run(wrong="1")
    town.tick()
    assert json.loads(log.file.read_text().splitlines()[1])["kind"] == "check_failed"


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("column `visit_id` is missing", "column `visit_id` is missing"),
        ("value 'Jane Roe' is bad", "value ••• is bad"),
        ('value "Jane', "value •••"),
        ("mail a.b+c@example.co.uk bounced", "mail ••• bounced"),
        ("from 203.0.113.9 and 2001:db8::7", "from ••• and •••"),
        ("at postgres://joe:pw@db/x now", "at ••• now"),
        ("user 4917612345678 of 24 hours", "user ••• of 24 hours"),
        ("token c2VjcmV0LXRva2VuLTE", "token •••"),
        ("a\x1b[31mred\r\nforged line", "a [31mred"),
        ("\n  first\u2028second", "first"),
        ("", ""),
    ],
)
def test_messages_are_redacted(message: str, expected: str) -> None:
    assert redacted(message) == expected


def test_long_messages_are_cut() -> None:
    assert len(redacted("word " * 10_000)) == 200


ALERT = Alert(id="1", kind="run_failed", severity="ERROR", run_id="r", time="2024-10-10T00:00:00+00:00", assets=())


class Receiver(HTTPServer):
    """A webhook on loopback that answers with the status of its choice."""

    status = 200

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.received: list[tuple[dict[str, Any], str | None]] = []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/hook"


class _Answer(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.received.append((body, self.headers["Idempotency-Key"]))
        self.send_response(self.server.status)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Silent."""


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    server = Receiver()
    monkeypatch.setenv("DE_SECRET_ALERTS", server.url)
    yield server
    server.shutdown()
    server.server_close()


def test_webhook_posts_the_alert(receiver: Receiver) -> None:
    WebhookAlertSink(url="secret://alerts").deliver(ALERT)
    [(body, key)] = receiver.received
    assert (body["kind"], body["run_id"], key) == ("run_failed", "r", "1")


@pytest.mark.parametrize(
    ("status", "error"), [(503, TransientError), (429, TransientError), (403, PermanentError), (302, PermanentError)]
)
def test_webhook_that_refuses(receiver: Receiver, status: int, error: type[Exception]) -> None:
    receiver.status = status
    with pytest.raises(error, match=str(status)) as caught:
        WebhookAlertSink(url="secret://alerts").deliver(ALERT)
    assert "127.0.0.1" not in str(caught.value)


def test_webhook_that_is_away(receiver: Receiver) -> None:
    receiver.shutdown()
    receiver.server_close()
    with pytest.raises(TransientError, match="did not answer") as caught:
        WebhookAlertSink(url="secret://alerts").deliver(ALERT)
    assert "127.0.0.1" not in str(caught.value)
