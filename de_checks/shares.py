"""Shares by name, such as of the rows that have a column or that a condition removes, as a verdict keeps them."""

from __future__ import annotations

from collections.abc import Mapping

SHARES = "shares"
"""Metadata of a verdict: the shares that it found."""

Shares = Mapping[str, float]
"""By name, a part of all rows, between 0 and 1."""


def rounded(shares: Shares) -> dict[str, float]:
    """To a millionth: enough to compare with, and short to read."""
    return {name: round(share, 6) for name, share in shares.items()}
