"""Classes that an asset names to stand around what the IO manager does for it: its writers and its readers."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import TypeVar

Layer = TypeVar("Layer")


def layers_of(
    named: str | Sequence[object] | None, kind: type[Layer], refused: Callable[[object, str], Exception]
) -> tuple[Layer, ...]:
    """What import paths (`package.module:Class`, or a list of them) name, each made again.

    Raises what `refused` makes of a path that is no subclass of `kind`, and why.
    """
    paths = [named] if isinstance(named, str) else named or ()
    return tuple(_load(path, kind, refused) for path in paths)


def _load(path: object, kind: type[Layer], refused: Callable[[object, str], Exception]) -> Layer:
    module, _, name = str(path).partition(":")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise refused(path, str(error)) from error
    if not (isinstance(found, type) and issubclass(found, kind)):
        raise refused(path, f"it is no subclass of `{kind.__name__}`")
    return found()
