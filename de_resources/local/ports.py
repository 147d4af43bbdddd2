"""Ports of the local services: the configured one, else the one used last time if it is free, else any free one."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Collection, Mapping
from pathlib import Path
from secrets import SystemRandom

from de_resources.errors import PermanentError

LOOPBACK = "127.0.0.1"
_OF_CONNECTIONS = Path("/proc/sys/net/ipv4/ip_local_port_range")
"""Where Linux tells from which ports it gives connections theirs."""
_LOWEST, _TRIES = 20_000, 100


class PortTaken(PermanentError):
    """A port that was asked for by configuration belongs to another process."""

    def __init__(self, service: str, port: int, variable: str) -> None:
        self.service = service
        self.port = port
        self.variable = variable
        super().__init__(
            f"Port {port} for {service} is used by another process, which is left alone: set {variable} to a free "
            "port, or unset it to have one picked."
        )


def allocate(service: str, roles: Mapping[str, str | None], record: Path) -> dict[str, int]:
    """One port per role (role -> variable that may configure it), remembered in the file `record` for the next time.

    Raises:
        PortTaken: a configured port is in use.
    """
    remembered = recorded(record)
    ports: dict[str, int] = {}
    for role, variable in roles.items():
        configured = os.environ.get(variable) if variable else None
        if configured and variable:
            ports[role] = _configured(service, int(configured), variable)
        elif role in remembered and remembered[role] not in ports.values() and is_free(remembered[role]):
            ports[role] = remembered[role]
        else:
            ports[role] = any_free(exclude=ports.values())
    record.parent.mkdir(parents=True, exist_ok=True)
    fresh = record.with_suffix(".new")
    fresh.write_text(json.dumps(ports))
    fresh.replace(record)
    return ports


def recorded(record: Path) -> dict[str, int]:
    """The ports of the last start; empty before the first."""
    return dict(json.loads(record.read_text())) if record.exists() else {}


def is_free(port: int) -> bool:
    """Whether a server could listen on the loopback port now."""
    with socket.socket() as probe:
        # As servers do: connections that linger from the last run do not make a port busy.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True


def _configured(service: str, port: int, variable: str) -> int:
    if not is_free(port):
        raise PortTaken(service, port, variable)
    return port


def any_free(exclude: Collection[int] = ()) -> int:
    """A port on which a server could listen now, and still can when it has started.

    Where the system tells which ports it gives to connections, it is none of these: while a server starts, for seconds, any
    client's connection could take it away.
    """
    below = _first_of_connections()
    for port in SystemRandom().sample(range(_LOWEST, below), min(_TRIES, below - _LOWEST)) if below > _LOWEST else ():
        if port not in exclude and is_free(port):
            return port
    return _given(exclude)


def _first_of_connections() -> int:
    """Zero where the system does not tell."""
    try:
        return int(_OF_CONNECTIONS.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 0


def _given(exclude: Collection[int]) -> int:
    """By the system, out of those that connections get too."""
    while True:
        with socket.socket() as probe:
            probe.bind((LOOPBACK, 0))
            port = int(probe.getsockname()[1])
        if port not in exclude:
            return port
