"""Running tests in a workplace, and what their end means."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event

from .witness import REPORT
from .workplace import Workplace, is_inside

LONGEST_SECONDS, LONGEST_TEST = 1200, 600
"""Each test has a time-out of its own, which fails it; what lasts longer than theirs is no answer."""
LINGERS = 60.0
"""For so long a call may go on when its tests are over: one that was cut short can leave something that does not end."""
_TESTS_FAILED, _NOTHING_RAN = 1, 5
# A defect may make an endless loop: a test that names no time of its own is given less than elsewhere. What a whole session
# shares is filled in the time of its first test, and ended in that of its last one.
_SECONDS, _SECONDS_OF_A_SESSION = 150, 400
_SESSIONS = ("tests/services", "tests/ui")
_OPTIONS = ("-q", "--no-header", "--tb=short", "-p", "sabotage.witness", "-p", "no:cacheprovider")


@dataclass(frozen=True)
class Outcome:
    """What a call of pytest came to. `broken` says why it is no answer: neither that all passed, nor that one failed."""

    failed: tuple[str, ...]
    passed: tuple[str, ...]
    broken: str | None
    told: str


def run(
    workplace: Workplace,
    tests: Sequence[str],
    extra: Mapping[str, str] | None = None,
    *,
    services: bool = False,
    stop_at_first: bool = True,
    interrupted: Event | None = None,
) -> Outcome:
    """Run the tests with these variables, until one fails unless told otherwise, or somebody interrupts.

    What services keep outlives the call.
    """
    interrupted = interrupted or Event()
    with tempfile.TemporaryDirectory(prefix="de-sabotage-", ignore_cleanup_errors=True) as scratch:
        report, output = Path(scratch) / "report.json", Path(scratch) / "output"
        environment = {**workplace.environment, **(extra or {}), REPORT: str(report)}
        if not services:
            # What a killed process leaves goes with it. Services that are kept outlive the folder.
            environment["TMPDIR"] = scratch
        seconds = _SECONDS_OF_A_SESSION if any(test.startswith(_SESSIONS) for test in tests) else _SECONDS
        options = [*_OPTIONS, "-o", f"timeout={seconds}", *(["-x"] if stop_at_first else [])]
        command = [sys.executable, "-m", "pytest", *options, *tests]
        with output.open("wb") as out:
            longest = LONGEST_SECONDS + LONGEST_TEST * len(tests)
            code = _finished(command, workplace.folder, environment, out, longest, report, interrupted)
        told = output.read_text(errors="replace")[-4000:]
        if not report.exists():
            return Outcome((), (), "it did not end" if code is None else f"pytest ended with {code}", told)
        found = json.loads(report.read_text())
    outcome = tuple(found["failed"]), tuple(found["passed"])
    if not is_inside(workplace.folder, found["modules"]):
        return Outcome(*outcome, "the project was imported from another place than the copy", told)
    if code not in (0, _TESTS_FAILED, None):
        return Outcome(*outcome, "no test ran" if code == _NOTHING_RAN else f"pytest ended with {code}", told)
    return Outcome(*outcome, None, told)


def _finished(
    command: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    out: object,
    seconds: float,
    report: Path,
    interrupted: Event,
) -> int | None:
    """The exit code; None for a process that had to be ended, with all that it had started.

    It has to be if it does not end in these seconds, nor in `LINGERS` from its report on.
    """
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdout=out,  # type: ignore[call-overload]
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    deadline = time.monotonic() + seconds
    ended = False
    while not ended and time.monotonic() < deadline and not interrupted.wait(0.1):
        # Looked at and not yet buried: until then nobody else can get its number, which is also that of its group.
        ended = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None
        if report.exists():
            deadline = min(deadline, time.monotonic() + LINGERS)
    # Also engines that outlive the tests that were cut short.
    _end_group(process.pid)
    code = process.wait()
    return code if ended else None


def _end_group(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return
