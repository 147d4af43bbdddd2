"""Registered users over time: they register, edit login, e-mail or country, and some delete their account for good."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Literal

import numpy as np

from de_assets.sources.simulator.content import COUNTRIES
from de_assets.sources.simulator.randomness import generator
from de_assets.sources.simulator.world import World

_LIFE = timedelta(days=365)
_MEAN_DAYS_BETWEEN_EDITS = 30.0
_SHARE_DELETED = 0.15


@dataclass(frozen=True, slots=True)
class UserProfile:
    """A registered user as of one moment."""

    id: str
    login: str
    email: str
    country: str
    registered_at: datetime


@dataclass(frozen=True, slots=True)
class UserChange:
    """A profile inserted, updated or deleted. `user` is the state afterwards; for a deletion, the last one."""

    time: datetime
    operation: Literal["I", "U", "D"]
    user: UserProfile


def user_changes(world: World, start: datetime, end: datetime) -> list[UserChange]:
    """Changes of `[start, end)`, by time, then user. The changes of a user have distinct times, in milliseconds."""
    return [change for change in all_changes(world) if start <= change.time < end]


def users_at(world: World, moment: datetime) -> dict[str, UserProfile]:
    """Profiles that exist right before `moment`, by id: what a table fed with all earlier changes holds."""
    users: dict[str, UserProfile] = {}
    for change in user_changes(world, datetime.min.replace(tzinfo=UTC), moment):
        users[change.user.id] = change.user
        if change.operation == "D":
            del users[change.user.id]
    return users


@lru_cache(maxsize=4)
def all_changes(world: World) -> tuple[UserChange, ...]:
    """Every change that will ever happen, in the order of `user_changes`."""
    changes = [change for life in lives(world) for change in life]
    return tuple(sorted(changes, key=lambda change: (change.time, change.user.id)))


@lru_cache(maxsize=4)
def lives(world: World) -> tuple[tuple[UserChange, ...], ...]:
    """Per user, in order of their numbers, all changes in order of time."""
    rng = generator(world.seed, "users")
    return tuple(tuple(_life(world, number, rng)) for number in range(1, world.users + 1))


def _life(world: World, number: int, rng: np.random.Generator) -> Iterator[UserChange]:
    registered = world.epoch + _duration(rng.uniform(-1, 1) * _LIFE.days)
    user = UserProfile(
        id=str(uuid.UUID(bytes=rng.bytes(16), version=4)),
        login=f"user_{number}",
        email=f"user_{number}@example.com",
        country=COUNTRIES[int(rng.integers(len(COUNTRIES)))],
        registered_at=registered,
    )
    yield UserChange(registered, "I", user)
    time, end = max(registered, world.epoch), world.epoch + _LIFE
    deleted = time + _duration(rng.uniform() * _LIFE.days) if rng.uniform() < _SHARE_DELETED else end
    edits = 0
    while (time := time + _duration(rng.exponential(_MEAN_DAYS_BETWEEN_EDITS))) < min(deleted, end):
        edits += 1
        user = _edited(user, number, edits, int(rng.integers(3)))
        yield UserChange(time, "U", user)
    if deleted < end:
        yield UserChange(deleted, "D", user)


def _edited(user: UserProfile, number: int, edit: int, kind: int) -> UserProfile:
    """Change one property to a value that the user has not had before (or had long ago, for countries)."""
    if kind == 0:
        return replace(user, login=f"user_{number}_{edit}")
    if kind == 1:
        return replace(user, email=f"user_{number}.{edit}@example.org")
    return replace(user, country=COUNTRIES[(COUNTRIES.index(user.country) + 1) % len(COUNTRIES)])


def _duration(days: float) -> timedelta:
    """Whole milliseconds, and never none, so that a user's changes are ordered by their times alone."""
    return timedelta(milliseconds=round(days * 86_400_000) or 1)
