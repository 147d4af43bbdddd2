"""Examples of a strategy all at once, for tests that ask the engine about all of them: a query each is most of their time."""

from __future__ import annotations

from typing import TypeVar

from hypothesis import given, settings
from hypothesis.strategies import SearchStrategy

Example = TypeVar("Example")


def generated(strategy: SearchStrategy[Example], number: int) -> list[Example]:
    """So many examples, the same in every run. One that fails is not made smaller: the test says which one it is."""
    found: list[Example] = []

    @settings(max_examples=number)
    @given(strategy)
    def keep(example: Example) -> None:
        found.append(example)

    keep()
    return found
