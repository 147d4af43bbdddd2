"""Filter Interceptor: a filter of named conditions that says how many rows each of them removed.

Source: pattern *Filter Interceptor*. The counts ride on the job that writes the kept rows (`Observation`): no second
pass, and exact when tasks are tried again, since Spark takes the metrics of a partition from one successful task only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import dagster as dg
from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F

from de_resources.delta.metadata import FILTER_CONDITIONS, FILTER_ROWS_IN
from de_resources.delta.observed_frame import ObservedFrame, Told
from de_resources.exact_histogram import BINS, counts, histogram

# What a condition says of a row. Null is neither true nor false: such a row is removed, and counted apart.
_HOLDS, _FAILS, _UNKNOWN = 0, 1, 2
_OUTCOMES = 3


@dataclass(frozen=True)
class Removed:
    """What one condition removed: rows for which it is the `first` in order that does not hold, rows that it `alone`
    removes, and rows of the input for which it is `unknown`, its value being null."""

    first: int = 0
    alone: int = 0
    unknown: int = 0


@dataclass(frozen=True)
class Interception:
    """The account of one filter: `rows_in == rows_kept + sum(first)`."""

    rows_in: int
    rows_kept: int
    conditions: Mapping[str, Removed]

    def metadata(self) -> dict[str, Any]:
        """For a materialisation: the numbers for programs, and a table for people."""
        numbers = {name: vars(removed) for name, removed in self.conditions.items()}
        return {
            FILTER_ROWS_IN: self.rows_in,
            "filter/rows_kept": self.rows_kept,
            FILTER_CONDITIONS: dg.MetadataValue.json(numbers),
            "filter/removed": dg.MetadataValue.md(_table(self)),
        }


def intercept(frame: DataFrame, conditions: Mapping[str, str], *, window: str | None = None) -> ObservedFrame:
    """The rows for which all conditions hold, and after the write what each condition removed.

    `conditions` are SQL predicates by name, in the order in which they are to be judged. With `window`, a timestamp
    column without nulls, the account is kept per value of it, as in a run over many partitions; without, for the frame
    as a whole.
    Raises `ValueError` without conditions. A rerun counts again.
    """
    if not conditions:
        raise ValueError("a filter needs at least one condition")
    predicates = [F.expr(condition) for condition in conditions.values()]
    start = F.unix_seconds(F.col(window)) if window else F.lit(0)
    code = start
    for predicate in predicates:
        code = code * _OUTCOMES + _outcome(predicate)
    observation = Observation(f"filter_{uuid4().hex}")
    observed = frame.observe(observation, histogram(code).alias("outcomes"))
    names = list(conditions)

    def tell() -> Told:
        outcomes = counts(observation.get["outcomes"])
        if outcomes is None:
            return {None: {"filter/uncounted": f"more than {BINS:,} different outcomes cannot be counted exactly"}}
        accounts = interceptions(outcomes.items(), names)
        return {_start(seconds) if window else None: account.metadata() for seconds, account in accounts.items()}

    kept = observed
    for predicate in predicates:
        kept = kept.where(predicate)
    return ObservedFrame(kept, tell)


def interceptions(outcomes: Iterable[tuple[int, int]], names: Sequence[str]) -> dict[int, Interception]:
    """The accounts by window, from how many rows there are of each code: window, then one digit per condition."""
    rows: dict[int, list[tuple[list[int], int]]] = {}
    for code, count in outcomes:
        digits = []
        for _ in names:
            code, digit = divmod(code, _OUTCOMES)
            digits.append(digit)
        rows.setdefault(code, []).append((digits[::-1], count))
    return {window: _account(each, names) for window, each in sorted(rows.items())}


def _account(rows: Sequence[tuple[Sequence[int], int]], names: Sequence[str]) -> Interception:
    first, alone, unknown = (dict.fromkeys(names, 0) for _ in range(3))
    for digits, count in rows:
        against = [name for name, digit in zip(names, digits, strict=True) if digit != _HOLDS]
        if against:
            first[against[0]] += count
        if len(against) == 1:
            alone[against[0]] += count
        for name, digit in zip(names, digits, strict=True):
            unknown[name] += count * (digit == _UNKNOWN)
    total = sum(count for _, count in rows)
    removed = {name: Removed(first[name], alone[name], unknown[name]) for name in names}
    return Interception(total, total - sum(first.values()), removed)


def _outcome(condition: Column) -> Column:
    return F.when(condition, _HOLDS).when(~condition, _FAILS).otherwise(_UNKNOWN)


def _start(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _table(account: Interception) -> str:
    head = ["| condition | first in order | share | it alone | unknown |", "|---|---|---|---|---|"]
    rows = [
        f"| {name} | {r.first:,} | {r.first / max(account.rows_in, 1):.2%} | {r.alone:,} | {r.unknown:,} |"
        for name, r in account.conditions.items()
    ]
    total = f"{account.rows_in:,} rows in, {account.rows_kept:,} kept"
    return "\n".join([*head, *rows, "", total])
