"""Modules as they are written, what those of the three packages import, and what the tests claim; parsed when a test asks.

Tests that ask are of the group `imports`, so that one process parses them.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

from de_assets.catalogue import PACKAGES, PROJECT, tests


def _name(file: Path) -> str:
    return ".".join(file.relative_to(PROJECT).with_suffix("").parts).removesuffix(".__init__")


@cache
def parsed(file: Path) -> ast.Module:
    """A module of the project."""
    return ast.parse(file.read_text(encoding="utf-8"))


@cache
def functions(file: Path) -> frozenset[str]:
    """The functions of a module, tests and others; those of its classes with the name of the class, as in a test's id."""
    found = set()
    for node in parsed(file).body:
        if isinstance(node, ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.ClassDef):
            found |= {f"{node.name}::{each.name}" for each in node.body if isinstance(each, ast.FunctionDef)}
    return frozenset(found)


def plain_tests(file: Path) -> set[str]:
    """The tests of a module without the names of their classes, for pages name none."""
    names = (name.rpartition("::")[2] for name in functions(file))
    return {name for name in names if name.startswith("test_")}


@cache
def proved() -> dict[str, list[str]]:
    """The tests of each pattern, by their marks."""
    return tests(PROJECT / "tests")


@cache
def trees() -> dict[str, ast.Module]:
    """By the name that they are imported by."""
    files = (file for package in PACKAGES for file in (PROJECT / package).rglob("*.py"))
    return {_name(file): parsed(file) for file in files}


@cache
def imports(module: str) -> frozenset[str]:
    """Wherever in its file, types only as well: a module where that is meant, and else the module that has the name."""
    known, found = trees(), set()
    for node in ast.walk(known[module]):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: a relative import"
            own = [f"{node.module}.{alias.name}" for alias in node.names]
            found.update(name if name in known else str(node.module) for name in own)
    return frozenset(found)
