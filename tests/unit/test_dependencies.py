"""What the project asks its users to install is what it uses."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions

import pytest
from own_modules import trees

from de_assets.catalogue import PROJECT

pytestmark = pytest.mark.xdist_group("imports")

NOT_IMPORTED = {
    "dagster-webserver": "started by its own command",
    "ua-parser-builtins": "the rules that ua-parser reads",
}


def names() -> Iterator[str]:
    """What is imported, and what is started as a module of its own."""
    for tree in trees().values():
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                yield node.module
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield from re.findall(r"^[a-z_]+(?:\.[a-z_]+)*$", node.value)


def test_nothing_is_installed_that_nobody_uses() -> None:
    declared = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["dependencies"]
    wanted = {re.split(r"[\[=<>~! ]", each)[0].lower() for each in declared}
    used = {name.split(".")[0] for name in names()}
    found = {
        d.lower().replace("_", "-") for module, ds in packages_distributions().items() if module in used for d in ds
    }
    assert wanted - found == NOT_IMPORTED.keys() & wanted
    assert NOT_IMPORTED.keys() <= wanted, "an excuse for what is not asked for any more"
