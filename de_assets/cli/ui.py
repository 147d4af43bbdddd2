"""The UI on loopback: Dagster's webserver and daemon over both code locations, until Ctrl-C."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from de_assets.calendar import Calendar
from de_assets.cli.grown_calendar import LOOK_SECONDS, GrownCalendar
from de_assets.cli.terminal import console
from de_resources.errors import PermanentError
from de_resources.local.ports import LOOPBACK, any_free, is_free
from de_resources.local.processes import MARKER, marked, stop_all
from de_resources.local.service import write_private
from de_resources.other_location import UI, OtherLocation
from de_resources.settings import Settings

READY_SECONDS = 300.0
GRACE_SECONDS = 40.0
_POLL_SECONDS = 0.5
_LINES_SHOWN = 15


class UIFailed(PermanentError):
    """The UI ended by itself, or never answered."""

    def __init__(self, why: str, log: Path) -> None:
        self.why, self.log = why, log
        last = "\n".join(log.read_text(errors="replace").splitlines()[-_LINES_SHOWN:])
        super().__init__(
            f"The UI failed: {why}. Its log {log} ends:\n{last}\nThe data is as it was. "
            "`dagster definitions validate -w workspace.yaml` tells whether both code locations load."
        )


class UIAlreadyRuns(PermanentError):
    """Another UI serves this home; two daemons over one home would start everything twice."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        super().__init__(
            f"A UI of this home already runs as process {pid}. Use it, or end it first: Ctrl-C in its terminal, "
            f"or `kill {pid}`."
        )


def serve(settings: Settings, port: int) -> None:
    """Run `dagster dev` until Ctrl-C or SIGTERM, then stop all that it started, workers of unfinished runs included.

    It listens on loopback only. A port that is taken (or 0) is replaced by a free one. The address is printed once it answers,
    and stays the last line: what the UI, its daemon and its runs print goes to a log. What `de land` adds to the calendar
    meanwhile gets its partitions.

    Raises `UIAlreadyRuns`, and `UIFailed` when the UI ends by itself or does not answer in time.
    """
    workspace = Path("workspace.yaml").resolve()
    if not workspace.exists():
        raise PermanentError("There is no workspace.yaml in this folder. Run `de` in the project's root folder.")
    for running in marked(_place(settings)):
        raise UIAlreadyRuns(running.pid)
    chosen = port if port and is_free(port) else any_free()
    if port and chosen != port:
        console.print(f"Port {port} is taken by another process, which is left alone.", highlight=False)
    served = OtherLocation(location="de_assets", ui=f"http://{LOOPBACK}:{chosen}")
    calendar = GrownCalendar(partial(Calendar.load, settings), served.load_again)
    with _termination_as_interrupt(), _dagster_dev(settings, workspace, chosen) as process, suppress(KeyboardInterrupt):
        with console.status("Starting the UI …"):
            _wait_until_it_answers(process, chosen, log_path(settings))
        console.print(f"What runs say: {log_path(settings)}", highlight=False)
        console.print(f"Dagster UI: http://{LOOPBACK}:{chosen} - Ctrl-C ends it")
        raise UIFailed(f"it ended with status {_ended(process, calendar)}", log_path(settings))


def _ended(process: subprocess.Popen[bytes], calendar: GrownCalendar) -> int:
    """The status with which the process ends; until then the calendar is looked at."""
    while True:
        with suppress(subprocess.TimeoutExpired):
            return process.wait(LOOK_SECONDS)
        calendar.look()


def log_path(settings: Settings) -> Path:
    """What the UI of this home, its daemon and its runs have printed since it was started."""
    return settings.logs / "ui.log"


@contextmanager
def _dagster_dev(settings: Settings, workspace: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """The process, in a group of its own so that Ctrl-C reaches us alone, and in the end nothing of it is left."""
    home = settings.dagster_home
    home.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "dagster", "dev", "-w", str(workspace), "-h", LOOPBACK, "-p", str(port)]
    log_path(settings).parent.mkdir(parents=True, exist_ok=True)
    write_private(log_path(settings), "")
    with log_path(settings).open("ab") as log:
        process = subprocess.Popen(
            [*command, "--log-level", "warning"],
            # Dagster warns at each start about a `dagster.yaml` in the working folder that is not the one in use.
            cwd=home,
            env={
                "PYTHONWARNINGS": "ignore",
                **os.environ,
                **_absolute(settings),
                MARKER: str(_place(settings)),
                UI: f"http://{LOOPBACK}:{port}",
            },
            stdout=log,
            stderr=log,
            process_group=0,
        )
    try:
        yield process
    finally:
        with _without_interrupts():
            process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(GRACE_SECONDS)
            stop_all(_place(settings))


def _absolute(settings: Settings) -> dict[str, str]:
    """The places of this home, independent of the working folder."""
    places = {"DE_HOME": settings.home, "DE_JARS": settings.jars, "DAGSTER_HOME": settings.dagster_home}
    return {**{name: str(place) for name, place in places.items()}, "LAKE_ROOT": settings.lake_root}


def _place(settings: Settings) -> Path:
    """What marks the UI's processes: apart from the services, which outlive it."""
    return settings.home / "ui"


def _wait_until_it_answers(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while not answers(port):
        if process.poll() is not None:
            raise UIFailed(f"it ended with status {process.returncode}", log)
        if time.monotonic() > deadline:
            raise UIFailed(f"no answer within {READY_SECONDS:.0f} s", log)
        time.sleep(_POLL_SECONDS)


def answers(port: int) -> bool:
    """Whether a webserver of Dagster's answers on the loopback port now. Proxies of the environment are not asked."""
    connection = HTTPConnection(LOOPBACK, port, timeout=5)
    try:
        connection.request("GET", "/server_info")
        return connection.getresponse().status == 200
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()


@contextmanager
def _termination_as_interrupt() -> Iterator[None]:
    """Treat SIGTERM and a closed terminal like Ctrl-C, so that they, too, leave nothing running.

    A shell that starts us in the background has SIGINT ignored, and Dagster would inherit that.
    """
    with _handled((signal.SIGINT, signal.SIGTERM, signal.SIGHUP), signal.default_int_handler):
        yield


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Impatience must not leave processes behind; what happens here ends within a known time."""
    with _handled((signal.SIGINT, signal.SIGTERM, signal.SIGHUP), signal.SIG_IGN):
        yield


@contextmanager
def _handled(signals: tuple[signal.Signals, ...], handler: "signal._HANDLER") -> Iterator[None]:
    before = {number: signal.signal(number, handler) for number in signals}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)
