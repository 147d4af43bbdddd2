"""Starting and stopping: idempotent, on free ports, and with an error that says what happened."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest
from typer.testing import CliRunner

from de_assets.cli import run
from de_assets.cli.application import application
from de_resources.local import LocalServices, ServicesFailed, ServiceStartFailed, ServiceState, ServiceStatus
from de_resources.local.ports import PortTaken
from de_resources.settings import Settings

pytestmark = pytest.mark.services


def test_a_second_up_changes_nothing(services: LocalServices) -> None:
    before = {status.name: (status.pid, status.port) for status in services.status()}

    after = services.up()

    assert {status.name: (status.pid, status.port) for status in after} == before
    assert {status.state for status in after} == {ServiceState.RUNNING}


def test_the_status_tells_what_runs_where(services: LocalServices) -> None:
    rows = json.loads(json.dumps([status.as_dict() for status in services.status()]))

    assert [row["name"] for row in rows] == ["spark_connect", "postgres", "kafka", "capture", "pages", "partner", "geo"]
    for row in rows:
        assert row["state"] == "running"
        assert row["why"] is None
        assert row["pid"] > 0
        assert row["memory_bytes"] > 10_000_000
        endpoint = services.endpoint(row["name"])
        assert endpoint is not None
        assert endpoint.port == row["port"]


@pytest.mark.parametrize("before", [[], ["geo"]])
def test_a_run_stops_exactly_what_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: list[str]
) -> None:
    monkeypatch.setenv("DE_HOME", str(tmp_path))
    own = LocalServices()

    def alive() -> dict[str, int | None]:
        return {status.name: status.pid for status in own.status() if status.is_running}

    def fill(_settings: Settings, services: LocalServices, *_: object, **__: object) -> bool:
        services.up([*before, "partner"])
        assert alive().keys() == {*before, "partner"}
        return True

    monkeypatch.setattr(run, "_fill", fill)
    try:
        own.up(before)
        running = alive()
        assert CliRunner().invoke(application(), ["run", "--once"]).exit_code == 0
        assert alive() == running
    finally:
        own.down()


def test_ports_and_data_survive_a_restart_and_a_taken_port_is_replaced(lone_services: LocalServices) -> None:
    first = _postgres(lone_services)
    lone_services.down()
    assert lone_services.endpoint("postgres") is None

    again = _postgres(lone_services)
    assert again.port == first.port
    assert again.pid != first.pid

    lone_services.down()
    with socket.socket() as foreign:
        foreign.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        foreign.bind(("127.0.0.1", first.port))
        foreign.listen()
        assert _postgres(lone_services).port != first.port


def test_a_configured_port_that_is_taken_is_an_error(
    lone_services: LocalServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as foreign:
        foreign.bind(("127.0.0.1", 0))
        foreign.listen()
        port = foreign.getsockname()[1]
        monkeypatch.setenv("DE_POSTGRES_PORT", str(port))

        with pytest.raises(ServicesFailed, match=f"Port {port} for postgres.*DE_POSTGRES_PORT") as failed:
            lone_services.up(["postgres"])

    assert isinstance(failed.value.failures[0], PortTaken)


def test_a_broken_service_shows_its_last_log_lines(lone_services: LocalServices) -> None:
    _postgres(lone_services)
    lone_services.down()
    with (lone_services.settings.home / "postgres" / "data" / "postgresql.conf").open("a") as configuration:
        configuration.write("no_such_setting = 1\n")

    with pytest.raises(ServicesFailed, match="no_such_setting") as failed:
        lone_services.up(["postgres"])

    (failure,) = failed.value.failures
    assert isinstance(failure, ServiceStartFailed)
    assert failure.service == "postgres"
    (status,) = [status for status in failed.value.statuses if status.name == "postgres"]
    assert status.state is ServiceState.FAILED
    assert "no_such_setting" in lone_services.logs("postgres", 5)


def test_a_start_that_takes_too_long_is_given_up(lone_services: LocalServices) -> None:
    with pytest.raises(ServicesFailed, match="not ready after"):
        lone_services.up(["spark_connect"], timeout=0.2)

    assert lone_services.endpoint("spark_connect") is None


def test_without_java_the_database_still_starts(
    lone_services: LocalServices, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    states = {status.name: status for status in lone_services.up()}

    assert states["postgres"].state is ServiceState.RUNNING
    for name in ("spark_connect", "kafka"):
        assert states[name].state is ServiceState.LEFT_OUT
        assert "install a JDK" in (states[name].why or "")


def _postgres(services: LocalServices) -> ServiceStatus:
    """Start the database alone: the service that starts fastest."""
    return next(status for status in services.up(["postgres"]) if status.name == "postgres")
