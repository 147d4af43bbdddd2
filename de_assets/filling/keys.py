"""Which partitions of a unit can be computed now: those whose sources are there, and passed their gates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import dagster as dg
from dagster import AssetKey

from de_assets.filling.units import Unit
from de_resources.held_back import in_the_time_of


@dataclass
class FillState:
    """What is known of an asset while a lake is filled."""

    partitions: dg.TimeWindowPartitionsDefinition | None = None
    there: set[str] | None = None
    """Partitions that can be read; None where there are none to tell apart."""
    bad: dict[str, str] = field(default_factory=dict)
    """Partitions that hold back what lies behind them, with the reason. `""` is an asset without partitions."""
    absent: str | None = None
    """Why there is nothing of it at all."""
    looks: Mapping[str, str] | None = None
    """Of a source outside: a fingerprint of each partition as it is now; None where no fingerprint tells of changes."""
    refused: Mapping[str, frozenset[dg.AssetCheckKey]] = field(default_factory=dict)
    """Of the bad ones, those that were computed and that only gates hold back: these."""

    def holds_back(self, unit: Unit) -> dict[str, str]:
        """What is bad for this reader: not what is refused by gates alone whose promises it does not need."""
        goes_on = {key for key, gates in self.refused.items() if gates <= unit.not_needed}
        return {key: why for key, why in self.bad.items() if key not in goes_on}

    @property
    def is_empty(self) -> bool:
        """Whether it has partitions, and none of them can be read, for no bad reason: their time is not over."""
        return self.partitions is not None and self.there is not None and not self.there and not self.bad


@dataclass
class Wanted:
    """What a unit is to compute: nothing at all where `absent` says why."""

    keys: list[str] | None
    """In order; None: the asset has no partitions."""
    held_back: dict[str, str]
    absent: str | None = None


def wanted(unit: Unit, states: Mapping[AssetKey, FillState]) -> Wanted:
    """What can be computed by the states of what the unit reads."""
    parents = [states[key] for key in sorted(unit.parents) if key in states]
    absent = next((parent.absent for parent in parents if parent.absent is not None), None)
    if absent is not None:
        return Wanted(None, {}, absent)
    if unit.partitions is None:
        empty = next((key for key in sorted(unit.parents) if key in states and states[key].is_empty), None)
        if empty is not None:
            return Wanted(None, {}, f"`{empty.to_user_string()}` has no partition that can be computed yet")
        bad = [f"{key}: {why}" if key else why for parent in parents for key, why in parent.holds_back(unit).items()]
        return Wanted(None, {"": bad[0]} if bad else {})
    known = unit.partitions.get_partition_keys()
    keys = set(known)
    held_back: dict[str, str] = {}
    for parent in parents:
        if parent.partitions is None:
            held_back.update(dict.fromkeys(keys, why) if (why := parent.holds_back(unit).get("")) is not None else {})
            continue
        if parent.there is not None:
            keys &= in_the_time_of(parent.partitions, {*parent.there, *parent.bad}, unit.partitions)
        for key, why in parent.holds_back(unit).items():
            held_back.update(dict.fromkeys(in_the_time_of(parent.partitions, [key], unit.partitions), why))
    if unit.carries and keys:
        # What is carried passes through partitions for which nothing came.
        places = [known.index(key) for key in keys]
        keys = set(known[min(places) : max(places) + 1])
    return Wanted([key for key in known if key in keys and key not in held_back], held_back)
