"""How the way of rows from their landing to an answer is declared."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise

import dagster as dg


@dataclass(frozen=True)
class Total:
    """Of a dataset whose rows stand for many: the sum of `column` over the rows that have the values of `where`."""

    column: str
    where: Mapping[str, int | str] = field(default_factory=dict)


@dataclass(frozen=True)
class Growth:
    """Of a stateful dataset, which adds a partition to what it has: by how much the sum of `column` grew with each."""

    column: str


Refusal = Callable[[datetime, datetime], str | None]
"""Why rows that landed in the partition that begins at the first moment are not taken in where they belong, the second one."""


@dataclass(frozen=True)
class Rejoined:
    """A table of rows that were set apart, each of which belongs to the partition that `column` says, and not to its own.

    The table is stored by the column. A row of a time that the calendar does not have is of the kind `before` or `after`; one
    that is `refused` by its moments alone, of the kind that this says. Where the run itself tells what it refuses, nothing
    has to be said here.
    """

    table: dg.AssetKey
    column: str
    before: str
    after: str
    refused: Refusal | None = None


@dataclass(frozen=True)
class Carried:
    """A table of what may go on after a partition: it lies in the partition of that time, and comes in again with the next one.

    `column` says for how many rows one of its rows stands.
    """

    table: dg.AssetKey
    column: str


@dataclass(frozen=True)
class Step:
    """The rows of `of` are in `into`, or in a table of `apart`, or were `removed`. None leaves the time of its partition.

    With `rejoined`, rows that an earlier step set apart are in `into`, or were removed, in the partitions that they belong to.
    `apart` and `removed` are by kind, a word for people: the table, by partitions of time as well; and the condition of a
    filter that says with each materialisation of `into` what it removed (`filter_interceptor.intercept`), first in order.
    `total` is for an `into` that has been aggregated, `carried` (by kind) for one that leaves to the next partition what may
    go on: of the kind is then what was left to it, without what had been left to this one.
    """

    of: dg.AssetKey
    into: dg.AssetKey
    apart: Mapping[str, dg.AssetKey] = field(default_factory=dict)
    removed: Mapping[str, str] = field(default_factory=dict)
    total: Total | Growth | None = None
    rejoined: Sequence[Rejoined] = ()
    carried: Mapping[str, Carried] = field(default_factory=dict)


class NoChain(ValueError):
    """Steps of which one does not begin where the one before it ends, or that do not end at the asset."""

    def __init__(self, asset: dg.AssetKey, steps: Sequence[Step]) -> None:
        self.asset, self.steps = asset, tuple(steps)
        told = ", ".join(f"{step.of.to_user_string()} to {step.into.to_user_string()}" for step in steps) or "none"
        super().__init__(
            f"The steps have to lead from where rows land to `{asset.to_user_string()}`, one after the other: {told}."
        )


def require_chain(asset: dg.AssetKey, steps: Sequence[Step]) -> None:
    """Raise `NoChain`."""
    joined = all(step.of == before.into for before, step in pairwise(steps))
    if not (steps and joined and steps[-1].into == asset):
        raise NoChain(asset, steps)
