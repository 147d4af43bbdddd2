"""The parameters that fix the blog's world completely."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

_MOST_USERS = 1_000_000


@dataclass(frozen=True)
class World:
    """Two worlds with equal fields are the same, on any machine. Raises ValueError for fields that make no world."""

    seed: int = 7
    epoch: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    """Half of the users are registered by then; profiles are edited and deleted from then on, for a year."""
    users: int = 1000
    """People who register at some time; at most a million. 10,000 suit a million visits a day."""
    guests: int = 3000
    """Visitors who never do."""

    def __post_init__(self) -> None:
        if self.epoch.tzinfo is None:
            raise ValueError("The world's epoch needs a time zone, e.g. `datetime(2026, 1, 1, tzinfo=UTC)`.")
        if not (1 <= self.users <= _MOST_USERS and self.guests >= 1):
            raise ValueError(f"A world needs at least one guest, and between one and {_MOST_USERS:,} users.")
