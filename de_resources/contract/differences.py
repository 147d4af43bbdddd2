"""Where two documents of lists, mappings and plain values differ, told by path for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

_SHORT = 80


def differences(kept: Any, made: Any, at: str = "") -> Iterator[str]:
    """Where two documents differ, by the path of the innermost thing that does; lists of named things by their names."""
    if isinstance(kept, Mapping) and isinstance(made, Mapping):
        for name in dict.fromkeys([*kept, *made]):
            path = f"{at}.{name}" if at else str(name)
            if name not in made:
                yield f"{path}: no longer said"
            elif name not in kept:
                yield f"{path}: not in the file"
            else:
                yield from differences(kept[name], made[name], path)
    elif (old := _named(kept)) is not None and (new := _named(made)) is not None:
        yield from differences(old, new, at)
        if list(old) != list(new) and old.keys() == new.keys():
            yield f"{at}: another order"
    elif kept != made:
        yield f"{at}: {_short(kept)} in the file, {_short(made)} now"


def _named(items: Any) -> dict[str, Any] | None:
    """A list of things that have names, or properties, of their own, by these."""
    if not isinstance(items, list) or not all(isinstance(i, Mapping) for i in items):
        return None
    names = [str(i.get("name", i.get("property", n))) for n, i in enumerate(items)]
    return dict(zip(names, items, strict=True)) if len(set(names)) == len(names) else None


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHORT else f"{text[: _SHORT - 1]}…"
