"""The snippets of the documentation, for the tests that execute them as a reader would."""

from __future__ import annotations

import re
import sys
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

    def execute(self, **given: object) -> ModuleType:
        """Run it as a module that can be imported meanwhile; a traceback names the lines of the document."""
        module = ModuleType("snippet")
        module.__dict__.update(given)
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(sys.modules, module.__name__, module)
            exec(compile("\n" * self.line + self.code, str(self.file), "exec", dont_inherit=True), module.__dict__)  # noqa: S102
        return module


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
