"""Where each pattern stands: carried, proved, or not yet; and which files to open."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from de_assets.catalogue.carriers import Carrier
from de_assets.catalogue.patterns import PATTERNS, Pattern

PROJECT = Path(__file__).resolve().parents[2]
PACKAGES = ("de_assets", "de_resources", "de_checks")
# Longest first: who declares the Stateful Merger has not declared the Merger.
_TITLE = re.compile("|".join(re.escape(p.title) for p in sorted(PATTERNS.values(), key=lambda p: -len(p.title))))


@dataclass(frozen=True)
class Status:
    """A pattern with what carries it in the graph and what proves it."""

    pattern: Pattern
    carriers: tuple[Carrier, ...]
    tests: tuple[str, ...]

    @property
    def is_carried(self) -> bool:
        """At least one definition carries it; tests alone are no use in the graph."""
        return bool(self.carriers)

    @property
    def is_proved(self) -> bool:
        """It is carried, and at least one test is marked with it."""
        return self.is_carried and bool(self.tests)


def status(carriers: Iterable[Mapping[str, list[Carrier]]], tests: Mapping[str, list[str]]) -> list[Status]:
    """All patterns, family by family. `carriers` has one mapping per code location."""
    locations = list(carriers)
    return [
        Status(
            pattern,
            tuple(carrier for location in locations for carrier in location.get(name, ())),
            tuple(tests.get(name, ())),
        )
        for name, pattern in PATTERNS.items()
    ]


def modules(pattern: Pattern, root: Path = PROJECT) -> list[str]:
    """The modules to open: those named after the pattern, and those whose docstring declares it."""
    files = (file for package in PACKAGES for file in sorted((root / package).rglob("*.py")))
    return [
        str(file.relative_to(root)) for file in files if file.stem == pattern.name or pattern.title in _declared(file)
    ]


@cache
def _declared(file: Path) -> frozenset[str]:
    """Titles in the paragraphs of a module's docstring from the word *Pattern* on, and the one that it begins with."""
    docstring = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    first = _TITLE.match(docstring)
    begins = [first[0]] if first and docstring[first.end() :].startswith(":") else []
    paragraphs = re.findall(r"\bPatterns?\b.*?(?=\n\n|\Z)", docstring, flags=re.DOTALL)
    return frozenset([*begins, *_TITLE.findall(" ".join(" ".join(paragraphs).split()))])
