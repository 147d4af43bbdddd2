"""Which patterns of the catalogue a check carries, said where the graph can be asked: in the check's own metadata."""

from __future__ import annotations

PREFIX = "pattern/"

STANDING = "standing"
"""Metadata of a check whose answer changes with time alone: a watch asks it though no run happens."""

KEPT_BY_CHECK = "kept_by_check"
"""Metadata of a check whose question the store asks no writer: it is asked again when somebody wrote around the platform."""


def carries(*patterns: str) -> dict[str, bool]:
    """Metadata for a check's spec: one `pattern/<snake_case name>` per pattern."""
    return {f"{PREFIX}{name}": True for name in patterns}
