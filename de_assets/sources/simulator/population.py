"""Everybody who can appear in a visit, as arrays: the profile a person has at a moment, and its JSON."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache

import numpy as np

from de_assets.sources.simulator.profiles import UserChange, lives
from de_assets.sources.simulator.randomness import Int64s, generator
from de_assets.sources.simulator.world import World

HOT_GUEST = 0
"""The guest who owns the skewed share of visits."""

_MOMENT_BITS = 43
_EARLIEST_MS = -(2**_MOMENT_BITS) // 2


@dataclass(frozen=True)
class Population:
    """Appearances: one per version of a user's profile, then one per guest. Lists are indexed by appearance."""

    ids: list[str]
    addresses: list[str]
    contexts: list[str]
    """JSON of `context.user`."""
    first_guest: int
    _keys: Int64s
    _owners: Int64s
    _present: Int64s

    def appearances(self, persons: Int64s, guests: Int64s, event_ms: Int64s) -> Int64s:
        """How each visitor shows at its event time.

        Persons show with the profile valid then; persons who are not registered (any more), and negative ones, as the
        guest beside them.
        """
        keys = _key(np.maximum(persons, 0), event_ms)
        versions = np.searchsorted(self._keys, keys, side="right") - 1
        known = (versions >= 0) & (persons >= 0)
        known &= (self._owners[versions] == persons) & (self._present[versions] == 1)
        return np.where(known, versions, self.first_guest + guests)


@lru_cache(maxsize=4)
def population(world: World) -> Population:
    """Lay the world's users and guests out; the same object for equal worlds."""
    versions = [(number, change) for number, life in enumerate(lives(world)) for change in life]
    owners = np.array([number for number, _ in versions], dtype=np.int64)
    moments = np.array([milliseconds(change.time) for _, change in versions], dtype=np.int64)
    rng = generator(world.seed, "guests")
    guests = [rng.bytes(8).hex() for _ in range(world.guests)]
    guest_addresses = [_address(world.users + number) for number in range(world.guests)]
    return Population(
        ids=[change.user.id for _, change in versions] + [f"guest-{guest}" for guest in guests],
        addresses=[_address(number) for number, _ in versions] + guest_addresses,
        contexts=[_user_context(number, change) for number, change in versions]
        + [_context(address) for address in guest_addresses],
        first_guest=len(versions),
        _keys=_key(owners, moments),
        _owners=owners,
        _present=np.array([change.operation != "D" for _, change in versions], dtype=np.int64),
    )


def milliseconds(moment: datetime) -> int:
    """Milliseconds since 1970, exactly."""
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1000 + since.microseconds // 1000


def _key(persons: Int64s, event_ms: Int64s) -> Int64s:
    """Person and moment in one sortable number, so that one binary search finds all profiles."""
    key: Int64s = (persons << _MOMENT_BITS) + (event_ms - _EARLIEST_MS)
    return key


def _address(number: int) -> str:
    """An address of the ranges set aside for tests and documentation; every tenth is IPv6."""
    if number % 10 == 9:
        return f"2001:db8::{number:x}" if number < 0x10000 else f"2001:db8::{number >> 16:x}:{number & 0xFFFF:x}"
    return f"198.{18 + (number >> 16 & 1)}.{number >> 8 & 255}.{number & 255}"


def _user_context(number: int, change: UserChange) -> str:
    """One user in three stays connected, since the registration."""
    since = f'"{change.user.registered_at.isoformat()}"' if number % 3 == 0 else "null"
    return _context(_address(number), f'"{change.user.login}"', since)


def _context(address: str, login: str = "null", connected_since: str = "null") -> str:
    """Put together by hand, since there are many and no value needs escaping; the last two are JSON already."""
    return f'{{"ip":"{address}","login":{login},"connected_since":{connected_since}}}'
