"""Runs a part of the suite, and what failed in it once more, alone: `python tests/unsteady.py MODULES CACHE ARGUMENTS…`.

A test that fails beside two other processes and passes by itself says that the *test* is not certain on a busy machine;
one that fails twice says that the code is wrong. Both are told. The call fails if a test fails twice, or if what failed
lies in more than MODULES modules (0: nothing is run again). What passed in the second run is *unsteady*: it is printed as
the last line and written to `UNSTEADY.txt` in the folder CACHE, and it is a defect to mend.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

FAILED = 1
"""Pytest's status where tests have failed; any other one is no verdict on a test."""
REPORT = "UNSTEADY.txt"
# The first call runs in several processes, the second one in one.
_PARALLEL = ("-n", "--dist")


def failed_tests(cache: Path) -> list[str]:
    """Ids of what failed in the last call that had this cache."""
    file = cache / "v" / "cache" / "lastfailed"
    return sorted(json.loads(file.read_text())) if file.exists() else []


def alone(arguments: list[str]) -> list[str]:
    """The same call for what failed, in one process."""
    kept: list[str] = []
    skip = False
    for argument in arguments:
        if not skip and argument not in _PARALLEL and argument != "--no-loadscope-reorder":
            kept.append(argument)
        skip = argument in _PARALLEL
    return [*kept, "--last-failed", "--last-failed-no-failures", "none"]


def main(modules: int, cache: Path, arguments: list[str]) -> int:
    """The status of the part: 0 also where all that failed passed alone."""
    (cache / REPORT).unlink(missing_ok=True)
    pytest = [sys.executable, "-m", "pytest", "-o", f"cache_dir={cache}"]
    status = subprocess.run([*pytest, "--cache-clear", *arguments], check=False).returncode
    failed = failed_tests(cache)
    touched = {test.partition("::")[0] for test in failed}
    if status != FAILED or not 0 < len(touched) <= modules:
        return status
    print(f"\nOnce more, alone: {', '.join(failed)}", flush=True)
    untimed = {name: value for name, value in os.environ.items() if name != "DE_TEST_TIMINGS"}
    again = subprocess.run([*pytest, *alone(arguments)], env=untimed, check=False).returncode
    if again == 0:
        (cache / REPORT).write_text("".join(f"{test}\n" for test in failed))
        print(f"\nUNSTEADY, passed alone and not beside others, a defect of the test: {', '.join(failed)}", flush=True)
    return again


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), Path(sys.argv[2]).resolve(), sys.argv[3:]))
