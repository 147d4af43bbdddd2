"""Ports: configured, remembered, or any free one."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from de_resources.local import ports
from de_resources.local.endpoints import accepts_connections
from de_resources.local.ports import PortTaken, allocate, any_free, is_free, recorded

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


def test_no_connection_is_given_a_port_that_a_server_will_listen_on(tmp_path: Path) -> None:
    """A server needs seconds to start, and meanwhile others connect to something."""
    told = Path("/proc/sys/net/ipv4/ip_local_port_range")
    if not told.exists():
        pytest.skip("the system does not tell which ports connections get")
    first, last = map(int, told.read_text().split())
    chosen = {*allocate("a", {f"role {n}": None for n in range(20)}, tmp_path / "a.json").values(), any_free()}
    assert len(chosen) >= 20
    assert [port for port in chosen if first <= port <= last] == []


@pytest.mark.parametrize("told", [None, "", "1024\t65535"], ids=["no file", "empty", "all of them"])
def test_where_the_system_keeps_no_ports_apart_any_free_one_is_taken(
    told: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if told is not None:
        (tmp_path / "range").write_text(told)
    monkeypatch.setattr(ports, "_OF_CONNECTIONS", tmp_path / "range")
    first = any_free()
    assert is_free(first)
    assert any_free([first]) != first


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
