"""The supervisor's configuration: what may be in a path or an environment comes out as it went in."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from de_resources.local.endpoints import ServiceState, ServiceStatus, ServiceUnavailable
from de_resources.local.services import LocalServices, UnknownService
from de_resources.local.supervision import Supervision
from de_resources.settings import Settings


def test_the_socket_is_in_the_home_or_short(tmp_path: Path) -> None:
    near = Supervision(Settings.from_environment({"DE_HOME": "/a"}))
    far = Supervision(Settings.from_environment({"DE_HOME": f"/{'a' * 120}"}))

    assert near.socket == Path("/a/run/supervisor.sock")
    assert len(os.fsencode(far.socket)) < 100


def test_nothing_runs_in_a_new_home(tmp_path: Path) -> None:
    services = LocalServices(Settings.from_environment({"DE_HOME": str(tmp_path / "home")}))

    assert {status.name: status.is_running for status in services.status()} == {
        "spark_connect": False,
        "postgres": False,
        "kafka": False,
        "capture": False,
        "pages": False,
        "partner": False,
        "geo": False,
    }
    assert all(status.why for status in services.status())
    assert services.endpoint("kafka") is None
    assert services.logs("kafka") == ""
    assert not (tmp_path / "home").exists(), "asking changes nothing"


def test_an_unknown_service_is_named_with_the_known_ones(tmp_path: Path) -> None:
    services = LocalServices(Settings.from_environment({"DE_HOME": str(tmp_path)}))

    with pytest.raises(UnknownService, match="choose from spark_connect, postgres, kafka"):
        services.up(["redis"])


def test_facts_of_an_unavailable_service_are_attributes() -> None:
    error = ServiceUnavailable("kafka", "127.0.0.1:9", "start it")

    assert (error.service, error.address, error.hint) == ("kafka", "127.0.0.1:9", "start it")
    assert str(error) == "kafka at 127.0.0.1:9 does not answer: start it"


def test_a_status_is_plain_values() -> None:
    assert ServiceStatus("kafka", ServiceState.STOPPED, why="w").as_dict() == {
        "name": "kafka",
        "state": "stopped",
        "port": None,
        "pid": None,
        "memory_bytes": None,
        "why": "w",
    }
