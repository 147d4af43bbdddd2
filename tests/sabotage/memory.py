"""What earlier runs found out, for as long as it still holds: an interrupted run goes on where it was."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from .defects import PROJECT, Defect

_CODE = ("de_assets", "de_resources", "de_checks", "benchmarks")
SUITE = PROJECT / ".de" / "pytest" / "passed.json"
"""What `make test` left (`tests/suite.py`)."""
_SOURCES = {".py", ".yaml", ".sql", ".xml", ".json"}


@dataclass(frozen=True)
class Verdict:
    """What became of a defect: the test that noticed it, or None; or why the entry is no question (`broken`)."""

    defect: str
    by: str | None
    seconds: float
    broken: str | None = None
    told: str = ""


class Memory:
    """Verdicts in a file, each under a digest of all that it depends on.

    That a test notices a defect depends on the code, on what tests share, and on the test itself; that none does, on all.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._known = json.loads(file.read_text()) if file.exists() else {}
        tests = _tests()
        self._shared = _digest([*_sources(_CODE), *(path for path in tests if not path.name.startswith("test_"))])
        self._all_tests = _digest(tests)

    def is_green(self, test: str) -> bool:
        """Whether the test is known to pass without a defect."""
        return bool(self._known.get(f"green {test}") == self._key(None, test))

    def remember_green(self, tests: Iterable[str]) -> None:
        """These tests passed without a defect."""
        for test in tests:
            self._known[f"green {test}"] = self._key(None, test)
        self._write()

    def recall(self, defect: Defect) -> Verdict | None:
        """The verdict, where it still holds. What was broken is always asked again."""
        found = self._known.get(defect.name)
        if found is None:
            return None
        verdict = Verdict(**found["verdict"])
        return verdict if found["key"] == self._key(defect, verdict.by) else None

    def remember(self, defect: Defect, verdict: Verdict) -> None:
        """Write it down at once: the next one may be interrupted."""
        if verdict.broken is None:
            self._known[defect.name] = {"key": self._key(defect, verdict.by), "verdict": asdict(verdict)}
        else:
            self._known.pop(defect.name, None)
        self._write()

    def forget(self, names: Iterable[str]) -> None:
        """Ask again about these defects."""
        for name in names:
            self._known.pop(name, None)
        self._write()

    def _write(self) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        draft = self._file.with_suffix(".draft")
        draft.write_text(json.dumps(self._known, indent=1))
        draft.replace(self._file)

    def _key(self, defect: Defect | None, by: str | None) -> str:
        tests = self._all_tests if by is None else _digest([PROJECT / by.partition("::")[0]])
        return hashlib.sha256(f"{defect!r}{self._shared}{tests}".encode()).hexdigest()


def state_of_the_code() -> str:
    """A digest of all that the answer of a test may depend on."""
    return _digest([*_sources(_CODE), *_tests()])


def passed_in_suite(left: Path = SUITE) -> list[str]:
    """The tests that passed in the last `make test`, if that was of the code as it is."""
    found = json.loads(left.read_text()) if left.exists() else {"code": None}
    return list(found["tests"]) if found["code"] == state_of_the_code() else []


def _tests() -> list[Path]:
    return [path for path in _sources(["tests"]) if "sabotage" not in path.relative_to(PROJECT).parts]


def _sources(folders: Iterable[str]) -> list[Path]:
    return [path for name in folders for path in sorted((PROJECT / name).rglob("*")) if path.suffix in _SOURCES]


def _digest(files: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for file in files:
        digest.update(str(file.relative_to(PROJECT)).encode() + b"\0")
        digest.update(file.read_bytes() if file.exists() else b"")
    return digest.hexdigest()
