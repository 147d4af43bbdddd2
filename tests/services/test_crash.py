"""After a crash of the supervisor: ours are found and stopped, strangers are left alone."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil
import psycopg2
import pytest
from processes import living
from waiting import PATIENCE

from benchmarks.orphans import adopted
from de_resources.local import LocalServices, ServicesFailed, ServiceState, ServiceStatus
from de_resources.local.processes import marked
from de_resources.postgres import PostgresDatabase

pytestmark = [pytest.mark.services, pytest.mark.faults]


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    """A process that is not ours."""
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


def test_down_stops_the_orphans_of_a_killed_supervisor(
    lone_services: LocalServices, stranger: subprocess.Popen[bytes]
) -> None:
    home = lone_services.settings.home
    lone_services.up(["postgres", "kafka"])
    ours = {process for root in marked(home) for process in [root, *root.children(recursive=True)]}
    _kill_supervisor(home)
    assert lone_services.endpoint("postgres") is None, "an unsupervised server is not offered"
    _reuse_pid(home / "run" / "supervisord.pid", stranger.pid)

    stopped = lone_services.down()

    assert stopped >= 2
    assert not living(ours)
    assert not marked(home)
    assert stranger.poll() is None


def test_up_recovers_from_a_killed_supervisor_and_stale_pid_files(
    lone_services: LocalServices, stranger: subprocess.Popen[bytes]
) -> None:
    home = lone_services.settings.home
    before = _database(lone_services.up(["postgres"]))
    _kill_supervisor(home)
    database = psutil.Process(before.pid)
    database.kill()
    database.wait(PATIENCE)
    _reuse_pid(home / "run" / "supervisord.pid", stranger.pid)
    _reuse_pid(home / "postgres" / "data" / "postmaster.pid", stranger.pid)

    after = _database(lone_services.up(["postgres"]))

    assert after.state is ServiceState.RUNNING
    assert after.port == before.port
    assert stranger.poll() is None


SHUT_DOWN = """
from de_resources.local.supervision import Supervision
from de_resources.settings import Settings

Supervision(Settings.from_environment()).shut_down(timeout=1e6)
"""


def test_a_supervisor_whose_end_nobody_asks_for_has_ended(
    lone_services: LocalServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a container whose first process asks for no orphan's status: it stays in the list of processes."""
    home = lone_services.settings.home
    monkeypatch.setenv("DE_HOME", str(home))
    with adopted():
        lone_services.up(["postgres"])
        supervisor = psutil.Process(int((home / "run" / "supervisord.pid").read_text()))
        subprocess.run([sys.executable, "-c", SHUT_DOWN], check=True, timeout=PATIENCE)
        assert supervisor.status() == psutil.STATUS_ZOMBIE


def test_a_data_folder_that_a_strangers_server_uses_is_left_alone(lone_services: LocalServices) -> None:
    lone_services.up(["postgres"])
    lone_services.down()
    data = lone_services.settings.home / "postgres" / "data"
    with subprocess.Popen(["sleep", "600"], cwd=data) as foreign_server:
        (data / "postmaster.pid").write_text(f"{foreign_server.pid}\n{data}\n")

        with pytest.raises(ServicesFailed, match=f"pid {foreign_server.pid}"):
            lone_services.up(["postgres"])

        assert foreign_server.poll() is None
        foreign_server.kill()


def test_a_dead_service_is_reported_and_started_again(lone_services: LocalServices) -> None:
    started = _database(lone_services.up(["postgres"]))
    database = psutil.Process(started.pid)
    database.kill()
    psutil.wait_procs([database], timeout=PATIENCE)

    dead = _database(lone_services.status())
    assert lone_services.endpoint("postgres") is None
    assert dead.state is ServiceState.FAILED
    assert "see `de logs postgres`" in (dead.why or "")

    assert _database(lone_services.up(["postgres"])).is_running


def test_a_service_that_dies_is_started_again_three_times_in_an_hour(lone_services: LocalServices) -> None:
    lone_services.up(["postgres"])
    # Behind the true time, by which `status` counts the restarts: one that is still to come is no restart.
    now = datetime.now(UTC) - timedelta(minutes=10)

    def until(*wanted: ServiceState) -> ServiceState:
        deadline = time.monotonic() + PATIENCE
        while (state := _database(lone_services.status()).state) not in wanted:
            assert time.monotonic() < deadline, state
            time.sleep(0.1)
        return state

    assert lone_services.revive(now) == [], "what runs is left alone"
    served = []
    for number in range(4):
        # One that is started while what its predecessor left is still at work dies by itself.
        if pid := _database(lone_services.status()).pid:
            psutil.Process(pid).kill()
        until(ServiceState.FAILED)
        now += timedelta(minutes=2)
        assert lone_services.revive(now) == (["postgres"] if number < 3 else [])
        served.append(until(ServiceState.RUNNING, ServiceState.FAILED))
    assert served[0] is ServiceState.RUNNING
    given_up = _database(lone_services.status())
    assert given_up.state is ServiceState.FAILED
    assert "again after 3 restarts" in (given_up.why or "")
    lone_services.down()
    assert lone_services.revive(now + timedelta(hours=2)) == [], "what was stopped on purpose stays stopped"


def test_a_database_whose_orphans_are_still_at_work_is_started_when_they_have_ended(
    lone_services: LocalServices, monkeypatch: pytest.MonkeyPatch, beside: ThreadPoolExecutor
) -> None:
    """They notice the server's death at their next pause, and PostgreSQL does not start while one of them lives."""
    monkeypatch.setenv("DE_HOME", str(lone_services.settings.home))
    monkeypatch.setattr("de_resources.local.postgres_server.ORPHAN_SECONDS", PATIENCE)
    server = psutil.Process(_database(lone_services.up(["postgres"])).pid)
    busy = beside.submit(_compute, PostgresDatabase())
    while not (orphans := _at_work(server)):
        assert not busy.done(), "the computation was too short"
    server.kill()
    server.wait(PATIENCE)
    assert any(orphan.is_running() for orphan in orphans)

    assert _database(lone_services.up(["postgres"])).is_running

    assert living(orphans) == []
    # The answer may have left the orphan before it noticed the death: the computation's outcome is not asked for.
    assert busy.exception(PATIENCE) is None or isinstance(busy.exception(), psycopg2.Error)


def _at_work(server: psutil.Process) -> list[psutil.Process]:
    """Its children that have computed for a while; others come and go."""
    found = []
    for process in server.children():
        with suppress(psutil.NoSuchProcess):
            found += [process] if process.cpu_times().user > 0.2 else []
    return found


def _compute(database: PostgresDatabase) -> None:
    """Seconds without a pause."""
    with database.connect() as session, session.cursor() as cursor:
        cursor.execute("SELECT sum(sqrt(n)) FROM (SELECT generate_series(1, 30000000) AS n) AS numbers")


def _database(statuses: list[ServiceStatus]) -> ServiceStatus:
    return next(status for status in statuses if status.name == "postgres")


def _kill_supervisor(home: Path) -> None:
    pid = int((home / "run" / "supervisord.pid").read_text())
    assert psutil.pid_exists(pid), (home / "logs" / "supervisord.log").read_text()
    supervisor = psutil.Process(pid)
    supervisor.kill()
    supervisor.wait(PATIENCE)


def _reuse_pid(pid_file: Path, pid: int) -> None:
    """Make the file look as if the system had given the pid in it to somebody else."""
    _, _, rest = pid_file.read_text().partition("\n")
    pid_file.write_text(f"{pid}\n{rest}")
