"""What the capture says of its sources is red in `de status` and an alert; what died is told first, and then started again."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from threading import Event, Thread

import pytest

from de_assets.automation.alerting.alerting import Alerting
from de_assets.automation.alerting.health import service_conditions
from de_assets.cli.doctor.services import check_service
from de_resources.capture.__main__ import _ended, _Teller
from de_resources.capture.source import CaptureSource
from de_resources.local import LocalServices
from de_resources.local.endpoints import ServiceState, ServiceStatus
from de_resources.local.supervision import ProcessInfo
from de_resources.settings import Settings

NOW = datetime(2026, 1, 5, 12, tzinfo=UTC)
SAID = {"users": "relaying", "orders": "relaying"}


@pytest.fixture
def said() -> dict[str, str]:
    """How the sources of a capture stand, by its own words."""
    return dict(SAID)


@pytest.fixture
def services(said: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalServices]:
    """A home whose capture tells this to whoever connects, and where nothing else was started."""
    services = LocalServices(Settings.from_environment({"DE_HOME": str(tmp_path)}))
    port = services._service("capture").allocate_ports()["client"]
    running = {"capture": ProcessInfo("RUNNING", os.getpid(), 0)}
    monkeypatch.setattr(services._supervision, "info", running.get)
    with _Teller(port, said) as teller, closing(_Stop(teller)):
        yield services


class _Stop:
    """A teller at work until it is closed."""

    def __init__(self, teller: _Teller) -> None:
        self.teller, self.thread = teller, Thread(target=teller.serve_forever, args=(0.01,))
        self.thread.start()

    def close(self) -> None:
        self.teller.shutdown()
        self.thread.join()


def _dead(said: dict[str, str]) -> None:
    """The thread of one source among several ends."""
    done: Future[None] = Future()
    done.set_exception(SystemExit(1))
    _ended(CaptureSource("orders", ("public.orders",), "orders"), Event(), said, done)


def _capture(services: LocalServices) -> ServiceStatus:
    return next(status for status in services.status() if status.name == "capture")


@pytest.mark.pattern("change_data_capture")
@pytest.mark.parametrize(
    ("what", "told"),
    [
        ("waiting: Another capture relays the slot `orders`.", "Another capture"),
        ("waiting: The publication `orders` lacks `public.orders`.", "lacks"),
        ("failed: KeyError, see the log of the capture", "KeyError"),
        (None, "dead: SystemExit"),
    ],
)
def test_a_source_that_does_not_relay_is_red_and_an_alert_and_the_others_are_not_named(
    services: LocalServices, said: dict[str, str], what: str | None, told: str
) -> None:
    assert _capture(services).state is ServiceState.RUNNING
    if what is None:
        _dead(said)
    else:
        said["orders"] = what
    status = _capture(services)
    assert status.state is ServiceState.DEGRADED
    assert status.is_running, "the others go on"
    assert f"`orders` {(what or told).partition(':')[0]}" in (status.why or "")
    assert "`users`" not in (status.why or "")
    (condition,) = service_conditions([status], NOW)
    assert (condition.subject, bool(condition.bad)) == ("service capture", True)
    assert told in str(condition.said["message"])

    said.update(SAID)
    (well,) = service_conditions([_capture(services)], NOW)
    assert not well.bad


@pytest.mark.pattern("change_data_capture")
def test_a_source_whose_table_is_not_there_yet_is_no_alarm(services: LocalServices, said: dict[str, str]) -> None:
    said["orders"] = "expecting: There is no table `public.orders`."
    assert _capture(services).state is ServiceState.RUNNING


def test_what_died_is_told_before_it_is_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    state = {"postgres": ServiceState.FAILED}
    asked: list[str] = []

    def look(_: LocalServices) -> list[ServiceStatus]:
        asked.append("look")
        return [ServiceStatus(name, each, why="it was killed") for name, each in state.items()]

    def revive(_: LocalServices, now: datetime) -> list[str]:
        assert now == NOW
        asked.append("revive")
        state["postgres"] = ServiceState.STARTING
        return ["postgres"]

    monkeypatch.setattr(LocalServices, "status", look)
    monkeypatch.setattr(LocalServices, "revive", revive)
    alerting = Alerting(sinks={})
    (condition,) = alerting.health(NOW)
    assert (asked, bool(condition.bad)) == (["look", "revive"], True)
    assert alerting.health(NOW) == [], "one that is starting is neither bad nor well"


def test_what_is_left_out_says_why_and_nothing_twice(tmp_path: Path) -> None:
    status = _capture(LocalServices(Settings.from_environment({"DE_HOME": str(tmp_path)})))
    assert status.state is ServiceState.LEFT_OUT
    assert check_service(status).detail == f"left out: {status.why}"
    assert "left out" not in (status.why or "")
