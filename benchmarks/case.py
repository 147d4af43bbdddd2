"""What a benchmark case is."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING

from benchmarks.figure import Figure

if TYPE_CHECKING:
    from benchmarks.workbench import Workbench


class ResultsDiffer(AssertionError):
    """Contenders that are not doing the same work; their times would say nothing."""

    def __init__(self, what: str, results: object) -> None:
        self.what, self.results = what, results
        super().__init__(f"The contenders of {what} do not leave the same result: {results}. Nothing was measured.")


def require_equal(what: str, *results: object) -> None:
    """Raise `ResultsDiffer` unless all results are equal."""
    if any(result != results[0] for result in results[1:]):
        raise ResultsDiffer(what, results)


@dataclass(frozen=True)
class Case:
    """One question. `how` tells readers what is measured; `run` measures it and leaves nothing outside the bench."""

    name: str
    how: str
    run: Callable[[Workbench], list[Figure]]

    @classmethod
    def of(cls, module: ModuleType) -> Case:
        """A module with `run(bench)` as a case: its name, and its docstring as the explanation."""
        return cls(module.__name__.rsplit(".", 1)[-1], inspect.getdoc(module) or "", module.run)
