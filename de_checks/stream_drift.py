"""Did the producer of a stream rename or drop a field that it may leave out? Pattern *Online Observer*.

As `schema_drift` for partitions. A stream has none: what a run brought is judged, by figures that the run itself has counted
(`filled`), and a run that brought too few rows is judged together with those after it. What is missing and what is new are
stronger together than each alone: an absent field beside one that the records' contract does not know needs fewer rows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from de_checks.factory import CheckRun, check_per_key, key_by_key
from de_checks.per_key import Key, Materialized, PastVerdict, Verdict, judged_before
from de_checks.schema_drift import ACCEPT_TAG, ROWS, USUAL, VANISHED, Filled, compare
from de_checks.shares import SHARES, Shares, rounded
from de_checks.subject import Subject, spec_of
from de_checks.unknown_fields import count_unknown, shown, unknown_counts
from de_resources.contract import Contract
from de_resources.sql.identifiers import identifier

FILLED = "stream/filled"
"""Metadata of a materialisation: the rows that the run judged, and by optional column those that have a value."""

WAITING = "waiting"
KNOWN, NEW = "known_fields", "new_fields"
"""Fields beyond the contract of the records: those that have come before, and those that came for the first time."""
_COLUMNS, _UNKNOWN = "columns", "unknown_fields"
_BESIDE_NEW = 0.01
"""How improbable an absence has to be that coincides with a new field."""


def filled(rows: DataFrame, contract: Contract, record: str, promised: Contract) -> dict[str, Any]:
    """The figures for `FILLED`: rows, by nullable column of the contract those that have a value, and the fields of the record.

    `record` is the column with the record's JSON text, and `promised` the contract of the records: by field that it does not
    know, how many have it. Names only, and no value. One aggregate.
    """
    optional = _optional(contract)
    counts = [F.count(F.col(identifier(column))) for column in optional]
    unknown = count_unknown(F.col(identifier(record)).cast("string"), promised.struct_type())
    found = rows.agg(F.count(F.lit(1)), unknown, *counts).collect()[0]
    return {
        ROWS: found[0],
        _COLUMNS: dict(zip(optional, found[2:], strict=True)),
        _UNKNOWN: unknown_counts(found[1] or []),
    }


def stream_drift_check(
    asset: Subject,
    *,
    at_least: int = 30,
    chance: float = 1e-6,
    name: str = "schema_has_not_drifted",
) -> dg.AssetChecksDefinition:
    """A check that no optional field was renamed or dropped in what a run brought.

    The asset's materialisations have `FILLED`. Three judgements of what came, and of runs before it that brought too few rows:

    - an optional column is null in all rows, and the records have a field that never came before: it was **renamed**, which
      is an error at once. A share `p` of rows that used to have it makes the absence from `n` rows as probable as
      `(1 - p)^n`, which has to be below one in a hundred: of a field that each record had, one record is enough. Of the run
      alone, and together with runs of too few rows before it;
    - an optional column is null in all of `at_least` rows or more, and that is less probable than `chance`, as in
      `schema_drift_check`: a warning, for what came is in the table already, and the stream goes on;
    - a field came for the first time, and none is absent: a warning, once.

    The share that a column used to have is the lowest of up to 24 earlier judgements that were good. A red one hands on what it
    was compared with, the known fields too, so that the drift stays red until the producer or the parser is mended, or
    a person executes the check with the run tag `de/drift_accepted` and the reason as its value.

    No engine and no table is touched. A rerun judges the same materialisation by the same measure. Metadata of a verdict:
    `rows`, `shares`, `usual_shares`, `vanished` as there, `new_fields`, `known_fields`, and `waiting`, the figures that wait
    for more rows.
    """
    optional = _optional(Contract.load(spec_of(asset).metadata["contract"]))

    def judge(run: CheckRun, key: Key, current: Materialized) -> Verdict:
        told = current.metadata.get(FILLED)
        if told is None:
            return Verdict(True, "This run has not counted which columns have values.")
        past = [
            each for each in judged_before(run.instance, run.check.key, key) if each.storage_id != current.storage_id
        ]
        waiting = past[0].metadata.get(WAITING) if past else None
        measures = [shares for each in past if (shares := _measure(each))]
        reason = run.tags.get(ACCEPT_TAG)

        def seen(figures: Mapping[str, Any]) -> _Seen:
            counted = {column: figures[_COLUMNS].get(column, 0) for column in optional}
            return _Seen(Filled(figures[ROWS], counted), _lowest(measures), figures[_UNKNOWN], _known(past))

        figures = _with_waiting(told, waiting)
        now, so_far = seen(_with_waiting(told, None)), seen(figures)
        is_enough = figures[ROWS] >= at_least
        renamed = next((each for each in (now, so_far) if each.renamed), None)
        if renamed is not None:
            waits = {} if reason or is_enough else {WAITING: figures}
            return renamed.as_renamed(waits, learns=bool(reason)).accepted_for(reason)
        learns = bool(reason) or is_enough or not now.absent
        if not is_enough:
            told_so = f"{figures[ROWS]:,} rows are too few to judge by."
            few = Verdict(True, told_so, {ROWS: figures[ROWS], WAITING: figures, USUAL: so_far.usual})
            return now.told(few, learns=learns).accepted_for(reason)
        verdict = compare(so_far.filled, measures, at_least, chance)
        verdict = Verdict(verdict.passed, verdict.description, verdict.metadata, dg.AssetCheckSeverity.WARN)
        return now.told(verdict, learns=learns).accepted_for(reason)

    return check_per_key(
        asset,
        name,
        key_by_key(judge),
        description="No optional field that used to come is absent from all records that came.",
        patterns=["online_observer"],
    )


@dataclass(frozen=True)
class _Seen:
    """What came, and what might be expected."""

    filled: Filled
    usual: Shares
    unknown: Mapping[str, int]
    """By field that the contract of the records does not know, how many records have it."""
    known: frozenset[str] | None
    """Those of them that came before; None: nothing was ever judged."""

    @property
    def new(self) -> list[str]:
        """Fields that never came before."""
        return [] if self.known is None else sorted(set(self.unknown) - self.known)

    @property
    def absent(self) -> list[str]:
        """Optional columns that used to have values and have none."""
        counted = self.filled.by_column or {}
        return [column for column, share in self.usual.items() if share > 0 and counted.get(column) == 0]

    @property
    def renamed(self) -> list[str]:
        """Those whose absence is no chance beside a new field."""
        unexpected = (c for c in self.absent if (1 - self.usual[c]) ** self.filled.rows < _BESIDE_NEW)
        return list(unexpected) if self.new else []

    def as_renamed(self, waits: Mapping[str, Any], *, learns: bool) -> Verdict:
        """The verdict that a field has another name now."""
        rows, counted = self.filled.rows, self.filled.by_column or {}
        gone = "; ".join(
            f"`{c}` is absent from all {rows:,} rows, where at least {self.usual[c]:.1%} had it before"
            for c in self.renamed
        )
        figures = {
            ROWS: rows,
            SHARES: rounded({column: count / rows for column, count in counted.items()}),
            USUAL: rounded(self.usual),
            VANISHED: self.renamed,
            **self._fields(learns=learns),
            **waits,
        }
        return Verdict(False, f"{gone}. New: {shown(self.new)}. Was it renamed?", figures)

    def told(self, verdict: Verdict, *, learns: bool) -> Verdict:
        """A verdict with the fields that came; a new one warns where nothing else does."""
        figures = {**verdict.metadata, **self._fields(learns=learns)}
        if not verdict.passed or not self.new:
            return Verdict(verdict.passed, verdict.description, figures, verdict.severity)
        description = f"Records have new fields: {shown(self.new)}. None is missing. {verdict.description}"
        return Verdict(False, description, figures, dg.AssetCheckSeverity.WARN)

    def _fields(self, *, learns: bool) -> dict[str, Any]:
        """What the next run takes for known: what is new stays new while it may be the other half of a renaming."""
        known = {*(self.known or ()), *(self.unknown if learns or self.known is None else ())}
        return {KNOWN: sorted(known)} | ({NEW: self.new} if self.new else {})


def _known(past: Sequence[PastVerdict]) -> frozenset[str] | None:
    return next((frozenset(each.metadata[KNOWN]) for each in past if KNOWN in each.metadata), None)


def _optional(contract: Contract) -> list[str]:
    return [column.name for column in contract.columns if column.nullable]


def _measure(past: PastVerdict) -> Shares | None:
    """What an earlier judgement stands for: its own shares where it was good, else those that it was compared with."""
    measure: Shares | None = past.metadata.get(SHARES if _is_good(past) and SHARES in past.metadata else USUAL)
    return measure


def _is_good(past: PastVerdict) -> bool:
    """Whether nothing was missing: a new field alone only warns."""
    return past.passed or (NEW in past.metadata and VANISHED not in past.metadata)


def _lowest(measures: Sequence[Shares]) -> Shares:
    columns = {column for each in measures for column in each}
    return {column: min(each[column] for each in measures if column in each) for column in sorted(columns)}


def _with_waiting(told: Mapping[str, Any], waiting: Mapping[str, Any] | None) -> dict[str, Any]:
    """The figures of this run, and of those before it that were too few."""
    before = waiting or {ROWS: 0}
    return {ROWS: told[ROWS] + before[ROWS]} | {
        name: _sums(told.get(name, {}), before.get(name, {})) for name in (_COLUMNS, _UNKNOWN)
    }


def _sums(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {name: one.get(name, 0) + other.get(name, 0) for name in sorted({*one, *other})}
