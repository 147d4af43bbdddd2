"""The snippets of the documentation, for the tests that execute them as a reader would."""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest

DOCS = Path(__file__).resolve().parents[1] / "docs"
_FENCE = re.compile(r"^```python(?P<needs>(?: \w+)*)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Snippet:
    """One fenced block: where it stands, below which heading, and what it needs besides Spark (`services`)."""

    file: Path
    line: int
    heading: str
    needs: frozenset[str]
    code: str

    def __str__(self) -> str:
        return f"{self.file.name}: {self.heading}"

    def misnamed(self) -> list[str]:
        """What it imports or calls that is not there by this name or with this argument, without running it.

        Imports are made; attributes of what is imported, and the keywords of calls to it, are looked up.
        """
        tree = ast.parse(self.code)
        imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
        known: dict[str, object] = {}
        exec(compile(ast.Module(imports, []), str(self.file), "exec"), known)  # noqa: S102
        found = []
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in known:
                if not hasattr(known[node.value.id], node.attr):
                    found.append(f"{node.value.id}.{node.attr}")
            elif isinstance(node, ast.Call):
                found += [f"{ast.unparse(node.func)}({name}=…)" for name in _unknown_arguments(node, known)]
        return found

    def execute(self, **given: object) -> ModuleType:
        """Run it as a module that can be imported meanwhile; a traceback names the lines of the document."""
        module = ModuleType("snippet")
        module.__dict__.update(given)
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(sys.modules, module.__name__, module)
            exec(compile("\n" * self.line + self.code, str(self.file), "exec", dont_inherit=True), module.__dict__)  # noqa: S102
        return module


def _unknown_arguments(call: ast.Call, known: Mapping[str, object]) -> list[str]:
    """The keywords of a call that the imported function or class does not take."""
    function: object = None
    if isinstance(call.func, ast.Name):
        function = known.get(call.func.id)
    elif isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name):
        function = getattr(known.get(call.func.value.id), call.func.attr, None)
    if not callable(function):
        return []
    try:
        parameters = inspect.signature(function).parameters
    except ValueError:  # of a builtin
        return []
    if any(parameter.kind == parameter.VAR_KEYWORD for parameter in parameters.values()):
        return []
    return [keyword.arg for keyword in call.keywords if keyword.arg and keyword.arg not in parameters]


def snippets(pages: str, *needs: str) -> list[Snippet]:
    """All Python snippets of the pages of `docs` that match, and that need exactly that."""
    found = [snippet for file in sorted(DOCS.glob(pages)) for snippet in _of(file)]
    return [snippet for snippet in found if snippet.needs == frozenset(needs)]


def _of(file: Path) -> list[Snippet]:
    text = file.read_text()
    return [
        Snippet(
            file,
            text[: match.start()].count("\n") + 1,
            _HEADING.findall(text[: match.start()])[-1],
            frozenset(match["needs"].split()),
            match["code"],
        )
        for match in _FENCE.finditer(text)
    ]
