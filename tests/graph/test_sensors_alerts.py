"""The sensor `alerts`: bad news arrives once, in order, without anybody's data, over restarts and dead sinks."""

import json
import socketserver
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email import message_from_bytes
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from instances import silent_instance
from waiting import PATIENCE

from de_assets.automation.alerting.alert import redacted
from de_assets.automation.alerting.alerting import Alerting
from de_assets.automation.alerting.health import service_conditions
from de_assets.automation.alerting.sensor import alerts
from de_assets.automation.alerting.sinks import AlertSink, EmailAlertSink, LogAlertSink, WebhookAlertSink
from de_checks.sla.missing import MissingPartitions, missing_partitions
from de_resources.alerts.book import Body
from de_resources.contract.sla import Sla
from de_resources.errors import PermanentError, TransientError
from de_resources.local.endpoints import ServiceState, ServiceStatus, ServiceUnavailable
from de_resources.postgres import SessionLost

BEGUN, RELEASED = threading.Event(), threading.Event()
days = dg.DailyPartitionsDefinition("2024-10-10", end_date="2024-10-14")


@dg.asset(key=["gold", "sales"], partitions_def=days, backfill_policy=dg.BackfillPolicy.single_run())
def sales(context: dg.AssetExecutionContext) -> None:
    if "hangs" in context.run.tags:
        BEGUN.set()
        RELEASED.wait(PATIENCE)
    if "away" in context.run.tags:
        raise ServiceUnavailable(context.run.tags["away"], "127.0.0.1:5432", "start it with `de up`")
    if "lost" in context.run.tags:
        raise SessionLost(context.run.tags["lost"], "127.0.0.1:5432", "server closed the connection")
    if "said" in context.run.tags:
        raise ValueError(context.run.tags["said"])
    if "breaks" in context.run.tags:
        raise ValueError("no rate for 'Jane Roe' <jane.roe@example.org> at 203.0.113.9\nsecond line: jane")


@dg.asset_check(asset=sales)
def sales_add_up(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
    passed = not context.run.tags.get("wrong")
    return dg.AssetCheckResult(passed=passed, metadata={"example": "jane.roe@example.org"})


class Town:
    """An instance in which runs happen, and the sensor with its cursor, book and channels."""

    def __init__(self, instance: dg.DagsterInstance, home: Path, sinks: dict[str, AlertSink]) -> None:
        self.instance, self.cursor = instance, None
        self.statuses: list[ServiceStatus] = []
        self.alerting = Alerting(home, sinks, services=lambda: self.statuses)

    def run(self, key: str = "2024-10-10", **tags: str) -> str:
        definitions = [sales, sales_add_up]
        return dg.materialize(
            definitions, partition_key=key, tags=tags, instance=self.instance, raise_on_error=False
        ).run_id

    def tick(self) -> None:
        with dg.build_sensor_context(
            instance=self.instance, cursor=self.cursor, resources={"alerting": self.alerting}
        ) as context:
            result = alerts(context)
        assert isinstance(result, dg.SensorResult)
        self.cursor = result.cursor


class AwaySink(AlertSink):
    """A channel that takes nothing."""

    def deliver(self, alert: Body) -> None:
        del alert
        raise TransientError("The sink is away.")


@pytest.fixture
def log(tmp_path: Path) -> LogAlertSink:
    return LogAlertSink(path=str(tmp_path / "logs" / "alerts.jsonl"))


@pytest.fixture
def town(log: LogAlertSink, tmp_path: Path) -> Iterator[Town]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield Town(instance, tmp_path, {"log": log})


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


def told(log: LogAlertSink) -> list[tuple[str, str]]:
    return [(alert["event"], alert["kind"]) for alert in lines(log)]


def test_a_check_that_stays_red_is_one_alert_and_one_recovery(town: Town, log: LogAlertSink) -> None:
    for day in ("2024-10-10", "2024-10-11", "2024-10-10"):
        town.run(day, wrong="1")
        town.tick()
    town.tick()
    assert told(log) == [("opened", "check_failed")]
    town.run("2024-10-10")
    town.tick()
    assert len(lines(log)) == 1, "the eleventh is still red"
    town.run("2024-10-11")
    town.tick()
    assert told(log) == [("opened", "check_failed"), ("recovered", "check_failed")]
    assert lines(log)[1]["text"].startswith("RECOVERED: ERROR: Check `sales_add_up` failed for gold/sales")
    town.run("2024-10-10", wrong="1")
    town.tick()
    assert told(log)[2:] == [("opened", "check_failed")]
    assert len({alert["id"] for alert in lines(log)}) == 3


def test_a_failed_run_recovers_when_what_it_missed_is_written(town: Town, log: LogAlertSink) -> None:
    town.run("2024-10-10", breaks="1")
    town.run("2024-10-11")
    town.tick()
    assert told(log) == [("opened", "run_failed")], "another partition mends nothing"
    town.run("2024-10-10")
    town.tick()
    assert told(log) == [("opened", "run_failed"), ("recovered", "run_failed")]


def test_a_failure_that_is_tried_again_gets_worse_when_it_is_not(town: Town, log: LogAlertSink) -> None:
    town.run(breaks="1", **{"dagster/will_retry": "true"})
    town.run(breaks="1")
    town.tick()
    assert [(alert["event"], alert["severity"]) for alert in lines(log)] == [("opened", "WARN"), ("worse", "ERROR")]


def test_tags_added_after_the_end_are_no_news(town: Town, log: LogAlertSink) -> None:
    run = town.run(wrong="1")
    town.tick()
    town.instance.add_run_tags(run, {"seen": "yes"})
    town.tick()
    assert len(lines(log)) == 1


def test_dead_sink_loses_nothing_and_blocks_nobody(town: Town, log: LogAlertSink, tmp_path: Path) -> None:
    second = LogAlertSink(path=str(tmp_path / "second.jsonl"))
    town.alerting = replace(town.alerting, sinks={"away": AwaySink(), "log": log})
    town.run("2024-10-10", wrong="1")
    town.run("2024-10-11", breaks="1")
    town.tick()
    assert told(log) == [("opened", "check_failed"), ("opened", "run_failed")]
    assert [(p.channel, p.waiting, p.why) for p in town.alerting.book.pending()] == [("away", 2, "The sink is away.")]
    town.alerting = replace(town.alerting, sinks={"away": second, "log": log})
    later = datetime.now(UTC) + timedelta(minutes=1)
    town.alerting.tell([], now=later)
    assert lines(second) == lines(log)


@pytest.mark.pattern("sla_misses_detector")
@pytest.mark.parametrize(
    "wrong",
    [
        {"DE_ALERT_EMAIL": "jane@example.org"},
        {"DE_ALERT_EMAIL": "jane@example.org", "DE_ALERT_FROM": "a@b.c", "DE_ALERT_SMTP": "mail:smtp"},
        {"DE_ALERT_EMAIL": "jane@example.org", "DE_ALERT_FROM": "a@b.c", "DE_ALERT_SMTP": "mail:0"},
        {"DE_ALERT_WEBHOOK": "secret://nowhere"},
        {"DE_ALERT_SINKS": "nowhere.at_all:Pager"},
    ],
    ids=["no server", "no port", "port 0", "no secret", "no module"],
)
def test_a_channel_that_is_configured_wrongly_is_told_by_the_others(
    town: Town, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, wrong: dict[str, str]
) -> None:
    """A run has ended and a service has died: both are told, and the tick gets as far as the services."""
    monkeypatch.setenv("DE_HOME", str(tmp_path))
    for name, value in wrong.items():
        monkeypatch.setenv(name, value)
    town.alerting = replace(town.alerting, sinks=None)
    town.statuses = [ServiceStatus("kafka", ServiceState.FAILED, why="it was killed")]
    log = LogAlertSink()
    town.run(wrong="1")
    for _ in range(2):
        town.tick()
    assert told(log) == [("opened", "check_failed"), ("opened", "channel_broken"), ("opened", "service_failed")]
    assert "jane" not in log.file.read_text()
    assert len(town.alerting.book.pending()) == 1, "what it missed waits until it is mended, or no longer wanted"
    for name in wrong:
        monkeypatch.delenv(name)
    town.tick()
    assert told(log)[3:] == [("recovered", "channel_broken")]
    assert town.alerting.book.pending() == []


def test_a_restart_or_a_lost_cursor_repeats_nothing(town: Town, log: LogAlertSink) -> None:
    town.run(wrong="1")
    town.run()
    town.tick()
    reached, town.cursor = town.cursor, None  # as after a crash between delivery and Dagster's record of the tick
    town.tick()
    assert town.cursor == reached
    assert told(log) == [("opened", "check_failed"), ("recovered", "check_failed")]


def test_many_runs_take_several_ticks(town: Town, log: LogAlertSink, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("de_assets.automation.alerting.sensor.RUNS_PER_TICK", 2)
    for tag in ({"wrong": "1"}, {"breaks": "1"}, {}, {"breaks": "1"}, {"wrong": "1"}):
        town.run(**tag)
    for _ in range(3):
        town.tick()
    opened, recovered = ("opened", "check_failed"), ("recovered", "check_failed")
    failed, mended = ("opened", "run_failed"), ("recovered", "run_failed")
    assert told(log) == [opened, failed, recovered, mended, failed, opened, mended]


@pytest.mark.pattern("sla_misses_detector")
def test_a_step_that_hangs_is_an_alert_and_its_end_a_recovery(town: Town, log: LogAlertSink) -> None:
    BEGUN.clear()
    RELEASED.clear()
    with silent_instance() as instance:
        town.instance = instance
        town.alerting = replace(town.alerting, promises={"gold/sales": Sla(takes_at_most=timedelta(microseconds=1))})
        run = threading.Thread(target=town.run, kwargs={"hangs": "1"})
        run.start()
        assert BEGUN.wait(PATIENCE)
        for _ in range(2):
            town.tick()
        assert told(log) == [("opened", "step_overdue")]
        assert lines(log)[0]["assets"] == ["gold/sales"]
        for now in (datetime.now(UTC) - timedelta(days=1), datetime.now(UTC)):
            town.alerting = replace(town.alerting, now=lambda now=now: now)
            town.tick()
        assert told(log) == [("opened", "step_overdue")], "a clock that was set back ends no step"
        RELEASED.set()
        run.join(PATIENCE)
        town.tick()
    assert told(log) == [("opened", "step_overdue"), ("recovered", "step_overdue")]


@pytest.mark.pattern("sla_misses_detector")
def test_a_partition_that_never_comes_is_an_alert_at_its_deadline_until_it_comes(town: Town, log: LogAlertSink) -> None:
    """Nothing runs: the clock tells it. What had ended before there was anything is nobody's promise."""
    hour, now = timedelta(hours=1), datetime.now(UTC)
    this_hour = now.replace(minute=0, second=0, microsecond=0)
    calendar = dg.HourlyPartitionsDefinition(this_hour - 4 * hour, fmt="%Y-%m-%d-%H:%M")
    keys = [f"{this_hour + number * hour:%Y-%m-%d-%H:%M}" for number in range(-1, 3)]
    promise = {"gold/sales": Sla(ready_within=hour / 2, input_within=hour / 3)}
    raw = dg.AssetSpec(["silver", "raw"], partitions_def=calendar)
    spec = dg.AssetSpec(["gold", "sales"], partitions_def=calendar, deps=[raw])
    known = {"gold/sales": spec, "silver/raw": raw}

    def at(moment: datetime) -> list[tuple[str, str]]:
        town.alerting = replace(town.alerting, promises=promise, assets=known, now=lambda: moment)
        town.tick()
        return told(log)

    def comes(asset: dg.AssetSpec, key: str) -> None:
        town.instance.report_runless_asset_event(dg.AssetMaterialization(asset.key, partition=key))

    assert at(this_hour + 3 * hour) == [], "it never ran"
    comes(spec, keys[0])
    deadline = this_hour + 1.5 * hour
    assert at(deadline - hour / 60) == [], "not yet"
    assert at(this_hour - 2 * hour) == [], "a clock that was set back makes nothing due"
    opened = ("opened", "partition_missing")
    assert at(deadline) == [opened]
    comes(raw, keys[2])
    assert at(deadline + hour) == [opened], "one more is no second alert"
    [alert] = lines(log)
    assert (alert["assets"], alert["partitions"], alert["severity"]) == (["gold/sales"], [keys[1]], "ERROR")
    assert "event time" in alert["message"]
    assert "processing time" not in alert["message"]
    comes(spec, keys[1])
    assert at(deadline + hour) == [opened], "the second one is still away"
    assert at(this_hour - 2 * hour) == [opened], "a clock that was set back mends nothing"
    comes(spec, keys[2])
    assert at(deadline + hour) == [opened, ("recovered", "partition_missing")]


@pytest.mark.pattern("sla_misses_detector")
def test_who_is_late_is_told_by_what_lies_in_the_window(town: Town) -> None:
    """A day of hours: with all of them it is the platform's, with one less the source's."""
    begin = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=1)
    hours, days = dg.HourlyPartitionsDefinition(begin), dg.DailyPartitionsDefinition(begin)
    raw = dg.AssetSpec("raw", partitions_def=hours)
    day = dg.AssetSpec("day", partitions_def=days, deps=[raw, dg.AssetSpec("elsewhere")])
    keys = [f"{begin + timedelta(days=number):%Y-%m-%d}" for number in range(3)]
    town.instance.report_runless_asset_event(dg.AssetMaterialization("day", partition=keys[0]))
    for number in range(24, 71):
        at = begin + timedelta(hours=number)
        town.instance.report_runless_asset_event(dg.AssetMaterialization("raw", partition=f"{at:%Y-%m-%d-%H:%M}"))
    promise = {"day": Sla(ready_within=timedelta(hours=1)), "raw": Sla(takes_at_most=timedelta(hours=1)), "gone": Sla()}
    found = missing_partitions(town.instance, begin + timedelta(days=3, hours=1), promise, {"day": day, "raw": raw})
    assert found == [MissingPartitions("day", (keys[1], keys[2]), (keys[2],))]


def test_a_service_that_died_is_an_alert_until_it_serves_again(town: Town, log: LogAlertSink) -> None:
    def is_now(state: ServiceState, why: str | None = None) -> None:
        town.statuses = [ServiceStatus("capture", state, why=why)]
        town.tick()

    is_now(ServiceState.RUNNING)
    is_now(ServiceState.FAILED, "it was killed; see `de logs capture`")
    is_now(ServiceState.FAILED, "it was killed; see `de logs capture`")
    is_now(ServiceState.STARTING)
    assert told(log) == [("opened", "service_failed")]
    is_now(ServiceState.RUNNING)
    is_now(ServiceState.DEGRADED, "`users` waiting: the row 'Jane Roe' is in the way")
    is_now(ServiceState.STOPPED)
    assert told(log)[1:] == [(event, "service_failed") for event in ("recovered", "opened", "recovered")]
    assert "Jane" not in log.file.read_text()


@pytest.mark.pattern("sla_misses_detector")
def test_a_database_that_is_away_is_one_alert_until_what_runs_missed_is_written(town: Town, log: LogAlertSink) -> None:
    """Ten minutes of it: the service's own news, and run after run that fails; another failure is news of its own."""
    keys = ["2024-10-10", "2024-10-11", "2024-10-12"]
    town.statuses = [ServiceStatus("postgres", ServiceState.RUNNING)]
    for key, how in zip(keys, ("away", "away", "lost"), strict=True):
        town.run(key, **{how: "postgres"})
        town.tick()
        town.statuses = [ServiceStatus("postgres", ServiceState.FAILED, why="it was killed")]
        town.tick()
    assert told(log) == [("opened", "service_failed")]
    first = lines(log)[0]
    assert (first["severity"], first["error"], first["assets"]) == ("ERROR", "ServiceUnavailable", ["gold/sales"])
    town.run("2024-10-13", breaks="1")
    town.tick()
    assert told(log)[1:] == [("opened", "run_failed")]

    town.statuses = [ServiceStatus("postgres", ServiceState.RUNNING)]
    town.tick()
    for key in keys[:-1]:
        town.run(key)
        town.tick()
    assert len(told(log)) == 2, "it answers, and a day is still missing"
    town.run(keys[-1])
    town.tick()
    assert told(log)[2:] == [("recovered", "service_failed")]


def test_a_message_that_quotes_an_absent_service_is_no_absent_service(town: Town, log: LogAlertSink) -> None:
    town.run(said="ServiceUnavailable: postgres at 127.0.0.1:1 does not answer: so it was said")
    town.tick()
    assert told(log) == [("opened", "run_failed")]


def test_a_service_that_is_left_out_is_no_news() -> None:
    left_out = ServiceStatus("kafka", ServiceState.LEFT_OUT, why="no Java")
    (condition,) = service_conditions([left_out], datetime.now(UTC))
    assert not condition.bad


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


ALERT = {"id": "1", "kind": "run_failed", "severity": "ERROR", "run_id": "r", "text": "ERROR: Run failed"}


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


class MailServer(socketserver.ThreadingTCPServer):
    """A mail server on loopback: speaks what SMTP needs, and refuses with the answer of its choice."""

    allow_reuse_address = daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Conversation)
        self.mails: list[bytes] = []
        self.receivers: list[str] = []
        self.answer = "250 ok"
        threading.Thread(target=self.serve_forever, daemon=True).start()


class _Conversation(socketserver.StreamRequestHandler):
    server: MailServer

    def handle(self) -> None:
        self._say("220 here")
        for line in self.rfile:
            word = line.split()[0].upper() if line.split() else b""
            if word == b"RCPT":
                self.server.receivers.append(line.decode().split(":", 1)[1].strip())
                self._say(self.server.answer)
            elif word == b"DATA":
                self._say("354 go on")
                self.server.mails.append(b"".join(iter(self.rfile.readline, b".\r\n")))
                self._say("250 taken")
            elif word == b"QUIT":
                self._say("221 bye")
                return
            else:
                self._say("250 ok")

    def _say(self, text: str) -> None:
        self.wfile.write(f"{text}\r\n".encode())


@pytest.fixture
def mail_server() -> Iterator[MailServer]:
    server = MailServer()
    yield server
    server.shutdown()
    server.server_close()


def mail(server: MailServer) -> EmailAlertSink:
    port = server.server_address[1]
    return EmailAlertSink(host="127.0.0.1", port=port, sender="de@example.org", receivers=["on.call@example.org"])


def test_a_mail_is_written_with_the_identity_of_the_alert(mail_server: MailServer) -> None:
    mail(mail_server).deliver(ALERT)
    message = message_from_bytes(mail_server.mails[0])
    assert mail_server.receivers == ["<on.call@example.org>"]
    assert (message["Subject"], message["Message-ID"]) == ("ERROR: Run failed", "<1@de-patterns>")
    assert json.loads(message.get_payload()) == ALERT


@pytest.mark.parametrize(
    ("answer", "error"), [("451 later", TransientError), ("550 no jane@example.org", PermanentError)]
)
def test_a_mail_server_that_refuses(mail_server: MailServer, answer: str, error: type[Exception]) -> None:
    mail_server.answer = answer
    with pytest.raises(error, match=answer[:3]) as caught:
        mail(mail_server).deliver(ALERT)
    assert "example.org" not in str(caught.value)


def test_a_mail_server_that_is_away(mail_server: MailServer) -> None:
    sink = mail(mail_server)
    mail_server.shutdown()
    mail_server.server_close()
    with pytest.raises(TransientError, match="did not answer"):
        sink.deliver(ALERT)


def test_no_password_goes_over_a_network_in_the_clear() -> None:
    class Server:
        def login(self, *_: str) -> None:
            raise AssertionError("it was sent")

    sink = EmailAlertSink(host="mail.example.org", sender="a@b.c", receivers=["d@e.f"], user="a", password="secret://p")
    with pytest.raises(PermanentError, match="in the clear"):
        sink._open(Server())  # type: ignore[arg-type]
