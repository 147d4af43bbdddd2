"""Runs a part of the suite, and what failed in it once more, alone: `python tests/unsteady.py MODULES CACHE FIRST… -- BOTH…`.

FIRST are pytest's arguments of the first call: how it is distributed, and where the tests are. BOTH belong to both calls.

A test that fails beside two other processes and passes by itself says that the *test* is not certain on a busy machine;
one that fails twice says that the code is wrong. Both are told. The call fails if a test fails twice, or if what failed
lies in more than MODULES modules (0: nothing is run again). What passed in the second run is *unsteady*: it is printed as
the last line and written to `UNSTEADY.txt` in the folder CACHE, and it is a defect to mend.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

FAILED = 1
"""Pytest's status where tests have failed; any other one is no verdict on a test."""
REPORT = "UNSTEADY.txt"
# `--dist loadgroup` appends the group to the id of a test.
_GROUP = re.compile(r"@[^]@:/]+$")


def failed_tests(cache: Path) -> list[str]:
    """Ids of what failed in the last call that had this cache."""
    file = cache / "v" / "cache" / "lastfailed"
    failed = json.loads(file.read_text()) if file.exists() else {}
    return sorted(_GROUP.sub("", test) for test in failed)


def main(modules: int, cache: Path, first: Sequence[str], both: Sequence[str]) -> int:
    """The status of the part: 0 also where all that failed passed alone. Ids are those of the folder that it is called in."""
    (cache / REPORT).unlink(missing_ok=True)
    pytest = [sys.executable, "-m", "pytest", "-o", f"cache_dir={cache}", *both]
    status = subprocess.run([*pytest, "--cache-clear", *first], check=False).returncode
    failed = failed_tests(cache)
    touched = {test.partition("::")[0] for test in failed}
    if status != FAILED or not 0 < len(touched) <= modules:
        return status
    print(f"\nOnce more, alone: {', '.join(failed)}", flush=True)
    untimed = {name: value for name, value in os.environ.items() if name != "DE_TEST_TIMINGS"}
    again = subprocess.run([*pytest, *failed], env=untimed, check=False).returncode
    if again == 0:
        (cache / REPORT).write_text("".join(f"{test}\n" for test in failed))
        print(f"\nUNSTEADY, passed alone and not beside others, a defect of the test: {', '.join(failed)}", flush=True)
    return again


if __name__ == "__main__":
    rest = sys.argv[3:]
    between = rest.index("--")
    sys.exit(main(int(sys.argv[1]), Path(sys.argv[2]).resolve(), rest[:between], rest[between + 1 :]))
