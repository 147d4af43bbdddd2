"""Runs the parts of the suite side by side, and what failed in them once more, alone.

`python tests/suite.py CACHE --part NAME 'FIRST…' [--part …] -- BOTH…`: FIRST are pytest's arguments of a part's first call,
how it is distributed and where its tests are; BOTH belong to every call. A part is a call of its own, for classic and Connect
sessions of Spark do not live in one process. What each says is kept in the folder CACHE and shown part by part, the first one
while it runs.

A test that fails beside other processes and passes by itself says that the *test* is not certain on a busy machine; one that
fails twice says that the code is wrong. Both are told. The call fails if a test fails twice, or if what failed lies in more
than `--again` modules (0: nothing is run again). What passed in the second run is *unsteady*: it is printed, written to
`UNSTEADY.txt` in the folder CACHE, and a defect to mend.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from passes import KEPT, without_group
from sabotage.memory import state_of_the_code

PASSED, FAILED, NO_TESTS = 0, 1, 5
"""Statuses of pytest; where it ends with any other one, no test is known to have failed."""
REPORT = "UNSTEADY.txt"
"""In the folder CACHE, as the next one."""
ALL_PASSED = "passed.json"
"""What passed, and of which code: `make sabotage` need not ask it again."""
TIMINGS = "DE_TEST_TIMINGS"
_LOOK_SECONDS = 0.3
_KILLED = 128
"""What a shell adds to the signal that ended a process."""


@dataclass(frozen=True)
class Part:
    """One call of pytest, and what it keeps: pytest's own cache, and what it said."""

    name: str
    first: tuple[str, ...]
    kept: Path

    @property
    def _said(self) -> Path:
        return self.kept / "said.txt"

    def _pytest(self, *arguments: str) -> list[str]:
        colour = "yes" if sys.stdout.isatty() else "no"
        return [sys.executable, "-m", "pytest", f"--color={colour}", "-o", f"cache_dir={self.kept}", *arguments]

    def begin(self, both: Sequence[str]) -> subprocess.Popen[bytes]:
        """All of its tests, in the background. Where time is measured, in a folder of its own."""
        self.kept.mkdir(parents=True, exist_ok=True)
        timings = {TIMINGS: str(Path(os.environ[TIMINGS]) / self.name)} if TIMINGS in os.environ else {}
        with self._said.open("wb") as said:
            command = self._pytest("--cache-clear", *both, *self.first)
            return subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT, env={**os.environ, **timings})

    def show(self, process: subprocess.Popen[bytes]) -> int:
        """What it said so far and what it still says; its status in the end."""
        with self._said.open(encoding="utf-8", errors="replace") as said:
            while True:
                status = process.poll()
                sys.stdout.write(said.read())
                sys.stdout.flush()
                if status is not None:
                    return status if status >= 0 else _KILLED - status
                time.sleep(_LOOK_SECONDS)

    def failed(self) -> list[str]:
        """Ids of the tests that failed in its last call."""
        return sorted(map(without_group, self._cached("cache/lastfailed")))

    def passed(self) -> list[str]:
        """Ids of those that passed."""
        return list(self._cached(KEPT))

    def _cached(self, name: str) -> Iterable[str]:
        file = self.kept / "v" / name
        return json.loads(file.read_text()) if file.exists() else ()

    def again(self, both: Sequence[str], tests: Sequence[str]) -> int:
        """These tests, with nothing beside; no time is measured."""
        untimed = {name: value for name, value in os.environ.items() if name != TIMINGS}
        return subprocess.run(self._pytest(*both, *tests), env=untimed, check=False).returncode


def main(parts: Sequence[Part], both: Sequence[str], cache: Path, modules: int = 0, *, some: bool = False) -> int:
    """The worst status of all parts; 0 also where all that failed passed alone. `some` tests: a part may have none."""
    for name in (REPORT, ALL_PASSED):
        (cache / name).unlink(missing_ok=True)
    code = state_of_the_code()
    running = [(part, part.begin(both)) for part in parts]
    try:
        statuses = [part.show(process) for part, process in running]
    except KeyboardInterrupt:  # they are told as well, and stop what they started
        return max(process.wait() for _, process in running)
    if state_of_the_code() == code:
        passed = [test for part in parts for test in part.passed()]
        (cache / ALL_PASSED).write_text(json.dumps({"code": code, "tests": passed}))
    failed = {part: part.failed() for part, status in zip(parts, statuses, strict=True) if status == FAILED}
    touched = {test.partition("::")[0] for tests in failed.values() for test in tests}
    worst = max((status for status in statuses if not (some and status == NO_TESTS)), default=NO_TESTS)
    if worst != FAILED or not 0 < len(touched) <= modules:
        return worst
    unsteady = [test for tests in failed.values() for test in tests]
    print(f"\nOnce more, alone: {', '.join(unsteady)}", flush=True)
    if any([part.again(both, tests) for part, tests in failed.items()]):
        return FAILED
    (cache / REPORT).write_text("".join(f"{test}\n" for test in unsteady))
    print(f"\nUNSTEADY, passed alone and not beside others, a defect of the test: {', '.join(unsteady)}", flush=True)
    return PASSED


def _arguments(given: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    between = given.index("--")
    parser = argparse.ArgumentParser(description="Runs the parts of the suite side by side.")
    parser.add_argument("cache", type=Path)
    parser.add_argument("--part", nargs=2, action="append", metavar=("NAME", "FIRST"), required=True)
    parser.add_argument(
        "--again", type=int, default=0, metavar="MODULES", help="run what failed in so many modules again"
    )
    parser.add_argument("--some", action="store_true", help="tests were chosen: a part may have none")
    return parser.parse_args(given[:between]), list(given[between + 1 :])


if __name__ == "__main__":
    asked, both = _arguments(sys.argv[1:])
    cache = asked.cache.resolve()
    parts = [Part(name, tuple(shlex.split(first)), cache / name) for name, first in asked.part]
    sys.exit(main(parts, both, cache, asked.again, some=asked.some))
