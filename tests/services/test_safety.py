"""Nothing listens beyond loopback, and no secret is where others could read it."""

from __future__ import annotations

import ipaddress
import re
import stat
from collections.abc import Mapping, Sequence
from contextlib import suppress

import psutil
import pytest
from processes import listening

from de_resources.local import LocalServices
from de_resources.local.processes import marked
from de_resources.secrets import FileSecrets

pytestmark = pytest.mark.services


def test_everything_listens_on_loopback_only(services: LocalServices) -> None:
    addresses = listening(_all_processes(services))

    assert len(addresses) >= 4, "the engine, the database, and two listeners of the broker"
    assert [ip for ip in addresses if not _is_loopback(ip)] == []


def test_secrets_are_in_private_files_and_nowhere_else(services: LocalServices) -> None:
    home = services.settings.home
    files = list(services.settings.secrets.iterdir())
    secrets = [FileSecrets(services.settings.secrets).read(file.name) or "" for file in files]
    assert len(secrets) == 8
    assert all(len(secret) >= 32 for secret in secrets)

    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    private = [services.settings.secrets, home / "run", home / "kafka", home / "postgres"]
    assert {stat.S_IMODE(folder.stat().st_mode) for folder in private} == {0o700}
    for configuration in ("kafka/server.properties", "spark_connect/server.properties"):
        assert stat.S_IMODE((home / configuration).stat().st_mode) == 0o600

    spoken = {log.name: log.read_text(errors="replace") for log in services.settings.logs.iterdir()}
    for process in _all_processes(services):
        spoken[f"process {process.pid}"] = "\n".join(_visible_to_others(process))
    spoken |= {f"endpoint {status.name}": repr(services.endpoint(status.name)) for status in services.status()}
    assert _betrayed(spoken, secrets) == []


def _betrayed(spoken: Mapping[str, str], secrets: Sequence[str]) -> list[tuple[str, str]]:
    """Where a secret is spoken, and the line with it, in which it is masked."""
    hidden = re.compile("|".join(map(re.escape, secrets)))
    return [
        (name, hidden.sub("***", line)[:400])
        for name, text in spoken.items()
        for line in text.splitlines()
        if hidden.search(line)
    ]


def _all_processes(services: LocalServices) -> set[psutil.Process]:
    roots = marked(services.settings.home)
    found = set(roots)
    for root in roots:
        with suppress(psutil.NoSuchProcess):
            found.update(root.children(recursive=True))
    return found


# Workers come and go: one that has just ended shows nothing to anybody.


def _visible_to_others(process: psutil.Process) -> list[str]:
    with suppress(psutil.NoSuchProcess):
        return [*process.cmdline(), *process.environ().values()]
    return []


def _is_loopback(ip: str) -> bool:
    address = ipaddress.ip_address(ip)
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback
