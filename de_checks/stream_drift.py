"""Did the producer of a stream rename or drop a field that it may leave out? Pattern *Online Observer*.

As `schema_drift` for partitions. A stream has none: what a run brought is judged, by figures that the run itself has counted
(`filled`), and a run that brought too few rows is judged together with those after it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from de_checks.factory import CheckRun, check_per_key, key_by_key
from de_checks.per_key import Key, Materialized, PastVerdict, Verdict, judged_before
from de_checks.schema_drift import ACCEPT_TAG, ROWS, SHARES, USUAL, Filled, Shares, compare
from de_checks.subject import Subject, spec_of
from de_resources.contract import Contract
from de_resources.sql.identifiers import identifier

FILLED = "stream/filled"
"""Metadata of a materialisation: the rows that the run judged, and by optional column those that have a value."""

WAITING = "waiting"
_COLUMNS = "columns"


def filled(rows: DataFrame, contract: Contract) -> dict[str, Any]:
    """The figures for `FILLED`: rows, and by nullable column of the contract those that have a value. One aggregate."""
    optional = _optional(contract)
    counts = [F.count(F.col(identifier(column))) for column in optional]
    found = rows.agg(F.count(F.lit(1)), *counts).collect()[0]
    return {ROWS: found[0], _COLUMNS: dict(zip(optional, found[1:], strict=True))}


def stream_drift_check(
    asset: Subject,
    *,
    at_least: int = 30,
    chance: float = 1e-6,
    name: str = "schema_has_not_drifted",
) -> dg.AssetChecksDefinition:
    """A check that no optional column that used to have values is null in all rows that a run brought.

    The asset's materialisations have `FILLED`. `at_least` and `chance` are those of `schema_drift_check`: fewer rows are kept
    for the next run's, and the share that a column used to have is the lowest of up to 24 earlier judgements that were good.
    A red one hands on what it was compared with, so that the drift stays red until the producer or the parser is mended, or
    a person executes the check with the run tag `de/drift_accepted` and the reason as its value.

    A warning, for what came is in the table already, and the stream goes on. No engine and no table is touched. A rerun
    judges the same materialisation by the same measure. Metadata of a verdict: `rows`, `shares`, `usual_shares`, `vanished`
    as there, and `waiting`, the figures that wait for more rows.
    """
    optional = _optional(Contract.load(spec_of(asset).metadata["contract"]))

    def judge(run: CheckRun, key: Key, current: Materialized) -> Verdict:
        told = current.metadata.get(FILLED)
        if told is None:
            return Verdict(True, "This run has not counted which columns have values.")
        past = [
            each for each in judged_before(run.instance, run.check.key, key) if each.storage_id != current.storage_id
        ]
        figures = _with_waiting(told, past[0].metadata.get(WAITING) if past else None)
        counted = {column: figures[_COLUMNS].get(column, 0) for column in optional}
        measures = [shares for each in past if (shares := _measure(each))]
        verdict = compare(Filled(figures[ROWS], counted), measures, at_least, chance)
        if figures[ROWS] < at_least:
            return Verdict(True, verdict.description, {ROWS: figures[ROWS], WAITING: figures, USUAL: _lowest(measures)})
        verdict = Verdict(verdict.passed, verdict.description, verdict.metadata, dg.AssetCheckSeverity.WARN)
        return verdict.accepted_for(run.tags.get(ACCEPT_TAG))

    return check_per_key(
        asset,
        name,
        key_by_key(judge),
        description="No optional column that used to have values is null in all rows that came.",
        patterns=["online_observer"],
    )


def _optional(contract: Contract) -> list[str]:
    return [column.name for column in contract.columns if column.nullable]


def _measure(past: PastVerdict) -> Shares | None:
    """What an earlier judgement stands for: its own shares where it was good, else those that it was compared with."""
    measure: Shares | None = past.metadata.get(SHARES if past.passed and SHARES in past.metadata else USUAL)
    return measure


def _lowest(measures: Sequence[Shares]) -> Shares:
    columns = {column for each in measures for column in each}
    return {column: min(each[column] for each in measures if column in each) for column in sorted(columns)}


def _with_waiting(told: Mapping[str, Any], waiting: Mapping[str, Any] | None) -> dict[str, Any]:
    """The figures of this run, and of those before it that were too few."""
    if waiting is None:
        return dict(told)
    before = waiting[_COLUMNS]
    columns = {column: count + before.get(column, 0) for column, count in told[_COLUMNS].items()}
    return {ROWS: told[ROWS] + waiting[ROWS], _COLUMNS: columns}
