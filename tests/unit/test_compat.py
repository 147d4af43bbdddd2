"""What the platform takes from private corners of Dagster and dagster-delta: in one folder, for versions that were tried.

An upgrade fails here first. Read `de_resources/compat`, run the whole suite, and then state the new versions.
"""

import ast
import importlib
from importlib.metadata import version
from pathlib import Path

import pytest

COMPAT = Path(importlib.import_module("de_resources.compat").__file__ or "").parent
PACKAGES = ("de_assets", "de_resources", "de_checks")
TRIED = {"dagster": "1.13.27", "dagster-delta": "0.5.9"}


@pytest.mark.parametrize("distribution", TRIED)
def test_the_installed_version_is_the_one_that_was_tried(distribution: str) -> None:
    assert version(distribution) == TRIED[distribution]


@pytest.mark.parametrize("module", sorted(path.stem for path in COMPAT.glob("[!_]*.py")))
def test_what_it_hands_on_is_there(module: str) -> None:
    found = importlib.import_module(f"de_resources.compat.{module}")
    assert all(hasattr(found, name) for name in found.__all__)


def test_nobody_else_imports_a_private_module() -> None:
    files = [file for package in PACKAGES for file in (COMPAT.parent.parent / package).rglob("*.py")]
    others = [file for file in files if file.parent != COMPAT]
    assert len(others) > 200
    assert {file: names for file in others if (names := list(_private(file)))} == {}


def _private(file: Path) -> list[str]:
    """Names of foreign modules with a part that begins with an underscore."""
    imported = [node.module for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.ImportFrom)]
    foreign = [
        module for module in imported if module and module.split(".")[0] in ("dagster", "dagster_delta", "deltalake")
    ]
    return [module for module in foreign if any(part.startswith("_") for part in module.split("."))]
