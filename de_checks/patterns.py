"""Which patterns of the catalogue a check carries, said where the graph can be asked: in the check's own metadata."""

from __future__ import annotations

PREFIX = "pattern/"


def carries(*patterns: str) -> dict[str, bool]:
    """Metadata for a check's spec: one `pattern/<snake_case name>` per pattern."""
    return {f"{PREFIX}{name}": True for name in patterns}
