"""The patterns by name, and the other names that people use for them. The lists are in two YAML files beside this."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum
from pathlib import Path
from typing import Any

import yaml

from de_resources.errors import PermanentError

PREFIX = "pattern/"
"""What the tag of a carrier starts with; the rest is the pattern's name."""

_FOLDER = Path(__file__).parent
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Family(StrEnum):
    """The nine families, in the order in which data meets them."""

    DATA_INGESTION = "data ingestion"
    ERROR_MANAGEMENT = "error management"
    IDEMPOTENCY = "idempotency"
    DATA_VALUE = "data value"
    DATA_FLOW = "data flow"
    SECURITY = "security"
    STORAGE = "storage"
    QUALITY = "quality"
    OBSERVABILITY = "observability"


class UnknownPattern(PermanentError):
    """A name that is neither a pattern nor an alias; `where` says who used it, if not the person at the keyboard."""

    def __init__(self, name: str, known: Iterable[str], where: str | None = None) -> None:
        self.name = name
        self.where = where
        self.close = get_close_matches(_normalised(name), list(known), n=3)
        hint = f"Did you mean {' or '.join(f'`{c}`' for c in self.close)}? " if self.close else ""
        used = f" ({where})" if where else ""
        super().__init__(f"There is no pattern `{name}`{used}. {hint}Run `de patterns` to see all names.")


@dataclass(frozen=True)
class Alias:
    """Another name: the patterns it belongs to, main one first, and what it `adds` to them.

    `place` is where the addition lives when it is not one pattern's alone.
    """

    title: str
    belongs_to: tuple[str, ...]
    adds: str
    place: str | None = None


@dataclass(frozen=True)
class Pattern:
    """One pattern of the catalogue. `name` is the part of its tag after `pattern/`."""

    name: str
    title: str
    family: Family
    promise: str
    aliases: tuple[Alias, ...]


def read_list(file: Path) -> Any:
    """What a person keeps as YAML. By libyaml where there is one: `de` reads two such lists at each start."""
    return yaml.load(file.read_text(encoding="utf-8"), Loader=_LOADER)  # noqa: S506 - both are safe loaders


def _load_aliases() -> list[Alias]:
    rows = read_list(_FOLDER / "aliases.yaml")
    return [
        Alias(title, tuple(row["belongs_to"]), row["adds"], row.get("place")) for row in rows for title in row["names"]
    ]


def _load_patterns() -> dict[str, Pattern]:
    families = read_list(_FOLDER / "patterns.yaml")
    return {
        name: Pattern(name, entry["title"], Family(family), entry["promise"], _aliases_of(name))
        for family, entries in families.items()
        for name, entry in entries.items()
    }


def _aliases_of(name: str) -> tuple[Alias, ...]:
    return tuple(alias for alias in ALIASES if name in alias.belongs_to)


def _normalised(text: str) -> str:
    """`Audit-Write-Audit-Publish`, `audit write audit publish` and the like in snake case."""
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")


ALIASES = _load_aliases()
PATTERNS = _load_patterns()
"""All patterns by name, family by family."""

_BY_TITLE = {_normalised(pattern.title): pattern for pattern in PATTERNS.values()}
_BY_ALIAS = {_normalised(alias.title): alias for alias in ALIASES}


def pattern_named(name: str, where: str) -> Pattern:
    """The pattern with exactly this snake_case name; `where` tells an error who used it.

    Raises:
        UnknownPattern: the catalogue has no such name; aliases do not count, because tags and marks use names only.
    """
    if name not in PATTERNS:
        raise UnknownPattern(name, PATTERNS, where)
    return PATTERNS[name]


def look_up(text: str) -> tuple[list[Pattern], Alias | None]:
    """What a person means by a name, a title or an alias, in any spelling: the patterns, and the alias if it is one.

    Raises:
        UnknownPattern: it is none of them.
    """
    wanted = _normalised(text)
    if pattern := PATTERNS.get(wanted) or _BY_TITLE.get(wanted):
        return [pattern], None
    if alias := _BY_ALIAS.get(wanted):
        return [PATTERNS[name] for name in alias.belongs_to], alias
    raise UnknownPattern(text, [*PATTERNS, *_BY_ALIAS])
