"""Consecutive partitions: which belong together in a run, and how a run says that it covers them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import date, datetime, timedelta
from typing import TypeVar

RANGE_START, RANGE_END = "dagster/asset_partition_range_start", "dagster/asset_partition_range_end"
"""Dagster's tags of a run over a range of partitions, both ends included."""

Moment = TypeVar("Moment", date, datetime)


def range_tags(first: str, last: str) -> dict[str, str]:
    """The tags of a run over the partition keys from `first` to `last`."""
    return {RANGE_START: first, RANGE_END: last}


def contiguous(moments: Iterable[Moment], step: timedelta, at_most: int | None = None) -> list[list[Moment]]:
    """The moments, in order of time, as groups that follow each other by `step`, of `at_most` moments each."""
    groups: list[list[Moment]] = []
    for moment in sorted(moments):
        if groups and moment - groups[-1][-1] == step and len(groups[-1]) != at_most:
            groups[-1].append(moment)
        else:
            groups.append([moment])
    return groups


def key_ranges(known: Sequence[str], wanted: Collection[str]) -> list[tuple[str, str]]:
    """The wanted ones of the known keys, in their order, as (first, last) of maximal runs without a gap."""
    ranges: list[tuple[str, str]] = []
    is_open, chosen = False, frozenset(wanted)
    for key in known:
        if key in chosen:
            ranges[-1:] = [(ranges[-1][0], key)] if is_open else [*ranges[-1:], (key, key)]
        is_open = key in chosen
    return ranges
