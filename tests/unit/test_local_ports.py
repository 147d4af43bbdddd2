"""Ports: configured, remembered, or any free one."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from de_resources.local.endpoints import accepts_connections
from de_resources.local.ports import PortTaken, allocate, is_free, recorded

ROLES = {"client": "DE_TEST_PORT", "controller": None}


@pytest.fixture
def busy() -> Iterator[int]:
    """A port on which somebody else listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture(autouse=True)
def _unconfigured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DE_TEST_PORT", raising=False)


def test_ports_are_free_different_and_remembered(tmp_path: Path) -> None:
    record = tmp_path / "ports" / "a.json"
    first = allocate("a", ROLES, record)

    assert len(set(first.values())) == 2
    assert all(is_free(port) for port in first.values())
    assert recorded(record) == first
    assert allocate("a", ROLES, record) == first


def test_a_remembered_port_that_is_busy_now_is_replaced(tmp_path: Path, busy: int) -> None:
    record = tmp_path / "a.json"
    record.write_text(f'{{"client": {busy}}}')

    assert allocate("a", ROLES, record)["client"] != busy


def test_a_configured_port_is_used_or_refused(tmp_path: Path, busy: int, monkeypatch: pytest.MonkeyPatch) -> None:
    record = tmp_path / "a.json"
    wanted = allocate("b", ROLES, tmp_path / "b.json")["client"]
    monkeypatch.setenv("DE_TEST_PORT", str(wanted))
    assert allocate("a", ROLES, record)["client"] == wanted

    monkeypatch.setenv("DE_TEST_PORT", str(busy))
    with pytest.raises(PortTaken, match="set DE_TEST_PORT to a free port") as taken:
        allocate("a", ROLES, record)
    assert (taken.value.service, taken.value.port, taken.value.variable) == ("a", busy, "DE_TEST_PORT")
    assert recorded(record)["client"] == wanted


def test_a_probe_tells_an_open_port_from_a_closed_one(busy: int) -> None:
    assert accepts_connections("127.0.0.1", busy)
    assert not is_free(busy)
    assert not accepts_connections("127.0.0.1", 1)
