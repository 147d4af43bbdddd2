"""Filter Interceptor: a filter of named conditions that says how many rows each of them removed.

Source: pattern *Filter Interceptor*. The counts ride on the job that writes the kept rows (`Observation`): no second
pass, and exact when tasks are tried again, since Spark takes the metrics of a partition from one successful task only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BinaryType, MapType, StringType, StructField, StructType

from de_resources.delta.metadata import FILTER_CONDITIONS, FILTER_ROWS_IN
from de_resources.delta.observed_frame import Markdown, MetadataByWindow, ObservedFrame
from de_resources.engine.exact_histogram import BINS, histogram, observed_counts
from de_resources.lineage import MARK

# What a condition says of a row. Null is neither true nor false: such a row is removed, and counted apart.
_HOLDS, _FAILS, _UNKNOWN = 0, 1, 2
_OUTCOMES = 3
# What the conditions say of a row, as one number with a digit each: both the account and the filter read it, and do not
# judge for themselves.
_OUTCOME = f"{MARK}filter_outcome"
_KEPT = f"{_OUTCOME} = {_HOLDS}"
# The same behind the row's window: what is counted.
_CODE = f"{MARK}filter_code"
# With the seconds of a window before them, more digits would not fit into the 53 bits that are counted exactly.
MOST_CONDITIONS = 13
# What takes more room in a row than a number.
_LONG = (StringType, BinaryType, ArrayType, MapType, StructType)
_UNCOUNTED = {"filter/uncounted": f"more than {BINS:,} different outcomes cannot be counted exactly"}


@dataclass(frozen=True)
class RemovedRows:
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
    conditions: Mapping[str, RemovedRows]

    def metadata(self) -> dict[str, Any]:
        """For a materialisation: the numbers for programs, and a table for people."""
        return {
            FILTER_ROWS_IN: self.rows_in,
            "filter/rows_kept": self.rows_kept,
            FILTER_CONDITIONS: self.numbers()["conditions"],
            "filter/removed": Markdown(_table(self)),
        }

    def numbers(self) -> dict[str, Any]:
        """For programs: `rows_in`, `rows_kept`, and per condition what it removed."""
        conditions = {name: vars(removed) for name, removed in self.conditions.items()}
        return {"rows_in": self.rows_in, "rows_kept": self.rows_kept, "conditions": conditions}


Accounts = Callable[[], dict[int, Interception] | None]
"""After the write: the accounts by the start of their window; None where they could not be counted."""


def intercept(
    frame: DataFrame,
    conditions: Mapping[str, str],
    *,
    window: str | None = None,
    expected: Iterable[datetime] = (),
) -> ObservedFrame:
    """The rows for which all conditions hold, and after the write what each condition removed.

    `conditions` are SQL predicates by name, in the order in which they are to be judged. With `window`, a timestamp
    column without nulls, the account is kept per value of it, as in a run over many partitions; without, for the frame
    as a whole. An `expected` window into which no row came has an account of zeros.
    Raises `ValueError` without conditions, or with more than `MOST_CONDITIONS`. A rerun counts again.
    """
    start = F.unix_seconds(F.col(window)) if window else F.lit(0).cast("long")
    kept, accounts = _filtered(frame, conditions, start)

    def metadata() -> MetadataByWindow:
        found = accounts()
        if found is None:
            return {None: dict(_UNCOUNTED)}
        told = {_start(seconds) if window else None: account.metadata() for seconds, account in found.items()}
        return {**dict.fromkeys(expected, _sum([], list(conditions)).metadata()), **told}

    return ObservedFrame(kept, metadata)


def intercept_stream(frame: DataFrame, conditions: Mapping[str, str], *, time: str, length: timedelta) -> ObservedFrame:
    """As `intercept`, with an account for the increment as a whole and one for each window of processing time.

    `time` is a timestamp column without nulls, such as the broker's; windows of `length` start at its multiples. The
    windows are in the metadata `filter/windows`, by their start: rows in and kept, and what each condition removed.
    """
    seconds = int(length.total_seconds())
    start = F.unix_seconds(F.col(time)) - F.unix_seconds(F.col(time)) % seconds
    kept, accounts = _filtered(frame, conditions, start)

    def metadata() -> MetadataByWindow:
        found = accounts()
        if found is None:
            return {None: dict(_UNCOUNTED)}
        windows = {_start(each).isoformat(): account.numbers() for each, account in found.items()}
        whole = _sum(found.values(), list(conditions))
        return {None: {**whole.metadata(), "filter/windows": windows}}

    return ObservedFrame(kept, metadata)


def account_by_hour(
    frame: DataFrame, conditions: Mapping[str, str], *, time: str
) -> tuple[DataFrame, Callable[[], MetadataByWindow]]:
    """The frame with all its rows, and after a write that reads it, what the conditions remove by the hour of `time`.

    The metadata `filter/by_hour` has the hours by their start; rows without a time are in `unknown`. For the table of
    what was set apart, beside the account of the table that keeps the rest.
    """
    seconds = F.unix_seconds(F.date_trunc("HOUR", F.col(time)))
    observed, accounts = _observed(_judged(frame, conditions), F.coalesce(seconds, F.lit(0)), list(conditions))

    def metadata() -> MetadataByWindow:
        found = accounts()
        if found is None:
            return {None: dict(_UNCOUNTED)}
        hours = {_start(each).isoformat() if each else "unknown": account.numbers() for each, account in found.items()}
        return {None: {"filter/by_hour": hours}}

    return observed.drop(_OUTCOME), metadata


def _filtered(frame: DataFrame, conditions: Mapping[str, str], start: Column) -> tuple[DataFrame, Accounts]:
    """The kept rows, and the accounts of the filter as in `_observed`."""
    observed, accounts = _observed(_light(_judged(frame, conditions)), start, list(conditions))
    return observed.where(_KEPT).drop(_OUTCOME), accounts


def _judged(frame: DataFrame, conditions: Mapping[str, str]) -> DataFrame:
    """The frame with the outcome of each row."""
    if not 1 <= len(conditions) <= MOST_CONDITIONS:
        raise ValueError(f"a filter needs at least one condition, and takes at most {MOST_CONDITIONS}")
    outcome = F.lit(0)
    for condition in conditions.values():
        outcome = outcome * _OUTCOMES + _digit(F.expr(condition))
    return frame.withColumn(_OUTCOME, outcome)


def _light(judged: DataFrame) -> DataFrame:
    """The rows without what is long in those that are about to be removed.

    Every row is copied on its way through an observation; this way only the kept ones are copied whole.
    """
    return judged.select(*(_if_kept(field) if _is_long(field) else _column(field.name) for field in judged.schema))


def _if_kept(field: StructField) -> Column:
    return F.when(F.expr(_KEPT), _column(field.name)).alias(field.name, metadata=field.metadata)


def _is_long(field: StructField) -> bool:
    return field.nullable and isinstance(field.dataType, _LONG)


def _column(name: str) -> Column:
    return F.col("`" + name.replace("`", "``") + "`")


def _observed(judged: DataFrame, start: Column, names: Sequence[str]) -> tuple[DataFrame, Accounts]:
    """The rows under observation, and the accounts by `start`, the seconds of a row's window."""
    observation = Observation(f"filter_{uuid4().hex}")
    code = start * _OUTCOMES ** len(names) + F.col(_OUTCOME)
    # As the histogram wants it: compiled with the rest of the row, where an aggregate of an observation is interpreted.
    coded = judged.withColumn(_CODE, code.cast("double"))
    observed = coded.observe(observation, histogram(F.col(_CODE)).alias("outcomes")).drop(_CODE)

    def accounts() -> dict[int, Interception] | None:
        outcomes = observed_counts(observation, "outcomes")
        return None if outcomes is None else interceptions(outcomes.items(), names)

    return observed, accounts


def _sum(accounts: Iterable[Interception], names: Sequence[str]) -> Interception:
    every = list(accounts)
    removed = {
        name: RemovedRows(
            *(sum(vars(each.conditions[name])[kind] for each in every) for kind in ("first", "alone", "unknown"))
        )
        for name in names
    }
    return Interception(sum(each.rows_in for each in every), sum(each.rows_kept for each in every), removed)


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
    removed = {name: RemovedRows(first[name], alone[name], unknown[name]) for name in names}
    return Interception(total, total - sum(first.values()), removed)


def _digit(condition: Column) -> Column:
    # Branches, not arithmetic on the truth value: where it holds, which is mostly, nothing else is computed. Where it does
    # not, it is asked once more whether it is unknown, which is still cheaper.
    return F.when(condition, F.lit(_HOLDS)).when(condition.isNull(), F.lit(_UNKNOWN)).otherwise(F.lit(_FAILS))


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
