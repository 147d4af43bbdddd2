"""The list of defects, and which tests have to notice each of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from de_assets.catalogue import proofs
from de_assets.catalogue.patterns import read_list

HERE = Path(__file__).parent
PROJECT = HERE.parent.parent
LIST = HERE / "defects"
FAULTS = PROJECT / "docs" / "faults.md"
# What starts no services is asked first.
_ORDER = ("tests/unit", "tests/tables", "tests/proof", "tests/graph", "tests/faults", "tests/services", "tests/ui")
_WITH_SERVICES = ("tests/services", "tests/ui")
_NAMED = re.compile(r"`([\w/]+\.py)::(\w+)`")


@dataclass(frozen=True)
class Defect:
    """One small mistake. `find` is in the file exactly once, and `replace` is put in its place.

    Tests that claim one of the `patterns`, or are named in the row `fault` of the list of faults, have to notice it.
    `noticed_by` is the one that is asked first.
    """

    name: str
    file: str
    find: str
    replace: str
    noticed_by: str
    patterns: tuple[str, ...] = ()
    fault: int | None = None

    @classmethod
    def of(cls, said: Mapping[str, object]) -> Defect:
        """From an entry of the list. An unknown or missing field is a `TypeError`."""
        facts = dict(said)
        facts["patterns"] = tuple(facts.get("patterns") or ())  # type: ignore[arg-type]
        return cls(**facts)  # type: ignore[arg-type]

    def planted(self, text: str) -> str:
        """The file's text with the defect in it. Raises `ValueError` unless there is exactly one place for it."""
        places = text.count(self.find)
        if places != 1:
            raise ValueError(f"{self.name}: {self.file} has {places} places for it instead of one")
        return text.replace(self.find, self.replace)

    @property
    def needs_services(self) -> bool:
        """Whether the test that is asked first starts services."""
        return self.noticed_by.startswith(_WITH_SERVICES)


def defects(folder: Path = LIST) -> list[Defect]:
    """All defects, file by file, in the order in which they are written down."""
    files = sorted(folder.glob("*.yaml"))
    return [Defect.of(entry) for file in files for entry in read_list(file)]


def rows(page: Path = FAULTS) -> dict[int, list[str]]:
    """Ids of the tests that prove each row of the list of faults."""
    found = {}
    for line in page.read_text(encoding="utf-8").splitlines():
        if match := re.match(r"\| (\d+) \|", line):
            found[int(match[1])] = [f"tests/{module}::{test}" for module, test in _NAMED.findall(line)]
    return found


@dataclass(frozen=True)
class Claims:
    """Which tests claim what."""

    by_pattern: Mapping[str, list[str]]
    by_fault: Mapping[int, list[str]]

    @classmethod
    def read(cls) -> Claims:
        """From the marks of the tests and the list of faults; imports no test."""
        return cls(proofs.tests(PROJECT / "tests"), rows())

    def of(self, defect: Defect) -> list[str]:
        """The tests that have to notice the defect, those without services first."""
        named = {test for pattern in defect.patterns for test in self.by_pattern.get(pattern, [])}
        if defect.fault is not None:
            named |= {_with_class(test, self.by_pattern) for test in self.by_fault.get(defect.fault, [])}
        # A defect of what carries no pattern is asked of the test that it names.
        return sorted(named or {defect.noticed_by}, key=lambda test: (_rank(test), test))


def plain(test: str) -> str:
    """A test's id without its class and its parameters: a page names no classes."""
    parts = test.partition("[")[0].split("::")
    return f"{parts[0]}::{parts[-1]}"


def stages(tests: list[str]) -> Iterator[list[str]]:
    """The tests folder by folder, in the order in which they are asked."""
    for folder in _ORDER:
        found = [test for test in tests if test.startswith(f"{folder}/")]
        if found:
            yield found


def _rank(test: str) -> int:
    return next((n for n, folder in enumerate(_ORDER) if test.startswith(f"{folder}/")), len(_ORDER))


def _with_class(test: str, by_pattern: Mapping[str, list[str]]) -> str:
    """The id by which pytest finds a test that a page names without its class."""
    known = (each for tests in by_pattern.values() for each in tests if plain(each) == test)
    return next(known, test)
