"""Many conditions or frames as one, in a tree whose depth grows with the logarithm of their number.

A chain (`a & b & c & …`) is as deep as it is long: Spark Connect's client and server refuse a message of a hundred levels, and
a plan of thousands ends the engine's stack.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

Part = TypeVar("Part")


def balanced(combine: Callable[[Part, Part], Part], parts: Iterable[Part]) -> Part:
    """The parts, one at least, combined pair by pair and then the pairs; their order stays. `combine` is associative."""
    level = list(parts)
    while len(level) > 1:
        pairs = zip(level[::2], level[1::2], strict=False)
        rest = level[-1:] if len(level) % 2 else []
        level = [combine(one, other) for one, other in pairs] + rest
    return level[0]
