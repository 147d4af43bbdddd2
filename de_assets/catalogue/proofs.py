"""Which tests prove each pattern: read from the marks `pytest.mark.pattern("name", …)`, without importing a test."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

from de_assets.catalogue.patterns import pattern_named
from de_resources.errors import PermanentError

_Names = Mapping[str, ast.expr]
"""What a module assigns to names at its top, so that a mark or a list of parameters may have a name."""


class UnreadableMark(PermanentError):
    """A mark whose arguments are not literal names, so that nobody can tell what it claims without running it."""

    def __init__(self, where: str) -> None:
        self.where = where
        super().__init__(
            f"The `pattern` mark at {where} is not made of literal names: write them out, as in "
            '`pytest.mark.pattern("merger")`.'
        )


def tests(folder: Path) -> dict[str, list[str]]:
    """Ids of the marked tests (`tests/unit/test_x.py::TestY::test_z`) by pattern name, relative to `folder`'s parent.

    A mark counts on a function, a class, a module (`pytestmark`), and on a parameter set (`pytest.param(marks=…)`).

    Raises:
        UnknownPattern: a mark names a pattern that the catalogue does not have.
        UnreadableMark: a mark's names cannot be read from the source.
    """
    found: dict[str, list[str]] = {}
    for file in sorted(folder.rglob("test_*.py")):
        for test, patterns in _tests_of(file, str(file.relative_to(folder.parent))):
            for name in sorted(patterns):
                found.setdefault(name, []).append(test)
    return found


def _tests_of(file: Path, module: str) -> Iterator[tuple[str, set[str]]]:
    text = file.read_text(encoding="utf-8")
    if "pattern" not in text:
        return  # No mark: most modules are not worth being parsed.
    tree = ast.parse(text, filename=module)
    yield from _walk(tree, module, set(), dict(_assignments(tree)))


def _walk(
    scope: ast.Module | ast.ClassDef, name: str, inherited: set[str], names: _Names
) -> Iterator[tuple[str, set[str]]]:
    """Tests in a module or class with the patterns they prove, those of the scopes around them included."""
    module = name.partition("::")[0]
    marks = inherited | {
        pattern
        for target, value in _assignments(scope)
        if target == "pytestmark"
        for pattern in _patterns(value, module, names)
    }
    for node in scope.body:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        own = marks | {p for decorator in node.decorator_list for p in _patterns(decorator, module, names)}
        if isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
            yield from _walk(node, f"{name}::{node.name}", own, names)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test"):
            yield f"{name}::{node.name}", own


def _assignments(scope: ast.Module | ast.ClassDef) -> Iterator[tuple[str, ast.expr]]:
    for node in scope.body:
        if isinstance(node, ast.Assign):
            yield from ((target.id, node.value) for target in node.targets if isinstance(target, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
            yield node.target.id, node.value


def _patterns(expression: ast.expr, module: str, names: _Names) -> Iterator[str]:
    """The patterns of all marks in an expression, and in what the names in it stand for."""
    for node in ast.walk(expression):
        if isinstance(node, ast.Name) and node.id in names:
            # Without the name itself: a definition that mentions its own name must not be followed for ever.
            yield from _patterns(names[node.id], module, {k: v for k, v in names.items() if k != node.id})
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("mark.pattern"):
            where = f"{module}:{node.lineno}"
            for argument in node.args:
                if not (isinstance(argument, ast.Constant) and isinstance(argument.value, str)):
                    raise UnreadableMark(where)
                yield pattern_named(argument.value, where).name
