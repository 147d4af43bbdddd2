"""`de run` ends with the UI: on loopback, on a free port, once per home, and leaving nothing behind."""

import ipaddress
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
import warm_process
from processes import listening, living, outlets
from simulated_home import START, View
from typer.testing import CliRunner
from waiting import PATIENCE
from web_ui import PROJECT, Webserver, free_port, until

from de_assets.cli.application import application
from de_assets.cli.ui import answers
from de_resources.local.processes import MARKER, marked, stop_all

pytestmark = pytest.mark.ui

Serve = Callable[[int], BaseProcess]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Starts the UI of an empty home on a wanted port, with the project's configuration."""
    (tmp_path / "dagster").mkdir()
    shutil.copyfile(PROJECT / "dagster.yaml", tmp_path / "dagster" / "dagster.yaml")
    started: list[BaseProcess] = []
    # The second look of the sensors is not awaited: nothing is to be computed here.
    environment = {**os.environ, "DE_HOME": str(tmp_path), "DE_SENSOR_SECONDS": "3600", "COLUMNS": "400"}

    def start(port: int) -> BaseProcess:
        log = tmp_path / f"ui-{len(started)}.log"
        process = warm_process.start("web_ui:serve_as_de_run", port, environment=environment, output=log)
        started.append(process)
        return process

    yield start
    for process in started:
        process.terminate()
        process.join(PATIENCE)


def end_of(process: BaseProcess, seconds: float) -> int | None:
    """The status with which it ends."""
    process.join(seconds)
    return process.exitcode


def said(home: Path, number: int = 0) -> str:
    log = home / f"ui-{number}.log"
    return log.read_text() if log.exists() else ""


def land_beside(home: Path, days: int) -> None:
    """A log of one view at noon of each day, landed by the command in another process than the UI's: this one."""
    log = home / "access.log"
    log.write_text("".join(f"{View(START + timedelta(days=day, hours=12), '/').line}\n" for day in range(days)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DE_HOME", str(home))
        landed = CliRunner().invoke(application(), ["land", str(log)])
    assert landed.exit_code == 0, landed.output


def test_the_ui_is_reachable_from_here_only_and_leaves_nothing(serve: Serve, tmp_path: Path) -> None:
    with socket.socket() as foreign:
        foreign.bind(("127.0.0.1", 0))
        foreign.listen()
        taken = foreign.getsockname()[1]
        process = serve(taken)
        until(lambda: "Dagster UI" in said(tmp_path), 2 * PATIENCE, lambda: said(tmp_path))

    output = said(tmp_path)
    assert f"Port {taken} is taken" in output
    address = re.search(r"http://127\.0\.0\.1:(\d+)", output)
    assert address is not None
    assert int(address[1]) != taken
    port = int(address[1])
    until(lambda: answers(port), PATIENCE, lambda: said(tmp_path))
    assert output.strip().splitlines()[-1].startswith("Dagster UI"), "the address stays the last line"

    family = marked(tmp_path / "ui")
    printed_to = outlets(family)
    assert tmp_path / "ui-0.log" not in printed_to, "runs that come later would print over the address"
    assert tmp_path / "logs" / "ui.log" in printed_to
    addresses = listening(family)
    assert addresses
    assert [ip for ip in addresses if not ipaddress.ip_address(ip).is_loopback] == []

    web = Webserver(int(address[1]))
    assert web.asset("gold/visits_cube_daily", "partitionKeys")["partitionKeys"][0] == "2024-10-10"
    land_beside(tmp_path, days=2)
    hours = [f"{START + timedelta(hours=12 + hour):%Y-%m-%d-%H:00}" for hour in range(25)]
    until(
        lambda: web.asset("bronze/visits", "partitionKeys")["partitionKeys"] == hours,
        120,
        lambda: f"the hours of the landed log have partitions; {said(tmp_path)}",
    )
    assert said(tmp_path) == output, "the address is still the last line"

    second = serve(0)
    assert end_of(second, PATIENCE) == 1
    assert "already runs" in said(tmp_path, 1)
    until(lambda: answers(port), PATIENCE, lambda: f"the first one goes on; it said: {said(tmp_path)}")

    process.terminate()
    assert end_of(process, PATIENCE) == 0
    assert marked(tmp_path / "ui") == []
    assert living(family) == []


def test_a_ui_that_cannot_start_says_so(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "dagster" / "dagster.yaml").write_text("no_such_setting: 1\n")
    assert end_of(serve(0), 2 * PATIENCE) == 1
    assert "UIFailed" in said(tmp_path)
    assert "no_such_setting" in said(tmp_path), "the end of the log says why"
    assert marked(tmp_path / "ui") == []


def test_the_ui_and_the_daemon_by_hand_as_the_documentation_says(tmp_path: Path) -> None:
    page = (PROJECT / "docs" / "second-day.md").read_text()
    (said_there,) = re.findall(r"^(DAGSTER_HOME=.*dagster dev.*?)\s+#", page, re.MULTILINE)
    command = said_there.replace("$PWD/.de", str(tmp_path))
    (tmp_path / "dagster").mkdir()
    shutil.copyfile(PROJECT / "dagster.yaml", tmp_path / "dagster" / "dagster.yaml")
    programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "DE_HOME": str(tmp_path), "PATH": programs, MARKER: str(tmp_path)}
    port = free_port()
    with (tmp_path / "by-hand.log").open("w") as log:
        process = subprocess.Popen(
            ["sh", "-c", f"exec env {command} -p {port}"], cwd=PROJECT, env=environment, stdout=log, stderr=log
        )
    try:
        until(lambda: answers(port), 2 * PATIENCE, (tmp_path / "by-hand.log").read_text)
        assert set(listening(marked(tmp_path))) == {"127.0.0.1"}
    finally:
        stop_all(tmp_path)
        process.wait(PATIENCE)
