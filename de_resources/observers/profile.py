"""One look at a version of a table: one aggregate over the partitions that changed, and nothing but figures comes back.

A table that is stored by partition has a point for each partition, another one a point for each version. Only partitions
that changed since the last look are read, each column once: more columns than `COLUMNS_PER_PASS` are read in several
passes of different columns. Of more than `MOST_PROFILED` columns the first ones are looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, DateType, IntegralType, StringType, StructField

from de_resources.contract import Contract
from de_resources.delta.log import TableLog
from de_resources.delta.log.changed_partitions import Values
from de_resources.delta.table import Table
from de_resources.observers.measures import (
    TOP,
    Figures,
    Measure,
    aggregates,
    figures,
    may_show_values,
    measures_of,
)
from de_resources.sql.balanced import balanced
from de_resources.sql.identifiers import identifier

COLUMNS_PER_PASS = 200
MOST_PROFILED = 2_000
"""As many columns are measured, which takes half a minute; of a wider table the page says how many are not."""
MOST_FIGURES = 200_000
"""As many figures come back from one look. Of a table with more, the newest partitions are looked at."""
TOP_VALUES = 5
_LONGEST_VALUE = 60


@dataclass(frozen=True)
class HistoryPoint:
    """What a partition, or a version, was like. `key` orders the points; `refused` says why it is no measure of others."""

    key: str
    version: int
    at: datetime
    figures: Figures
    refused: str = ""
    partition: tuple[str | None, ...] = field(default=())


def profile(
    session: SparkSession, table: Table, log: TableLog, partitions: Sequence[Values] | None, at: datetime
) -> list[HistoryPoint]:
    """A point for each of these partitions; None: one of the table as a whole, at the version of the log.

    A partition without rows has a point of zeros. Reads a fixed version and takes no lock. A rerun gives the same counts and
    bounds; sketches may differ within their error.
    """
    frame = table.read(session, log.version)
    if partitions is None:
        (whole,) = _looked_at(frame, table.contract, []).values()
        return [HistoryPoint(f"{at:%Y-%m-%d %H:%M:%S} v{log.version}", log.version, at, whole)]
    columns = log.partition_columns()
    live = {tuple(found[c] for c in columns) for found in log.table.partitions()}
    filled = newest([values for values in partitions if values in live], most_partitions(frame))
    found = _looked_at(frame.where(_inside(frame, columns, filled)), table.contract, columns) if filled else {}
    empty = {_label(values): Figures(0) for values in partitions if values not in live}
    by_label = {_label(values): values for values in partitions}
    return [
        HistoryPoint(label, log.version, at, own, partition=by_label.get(label, ()))
        for label, own in sorted((empty | {_label(k): v for k, v in found.items()}).items())
    ]


def most_partitions(frame: DataFrame) -> int:
    """How many partitions of such a table one look takes."""
    return max(1, MOST_FIGURES // (10 * len(frame.columns)))


def newest(partitions: Sequence[Values], most: int) -> list[Values]:
    """The last ones in their order."""
    return sorted(partitions, key=_label)[-most:]


def profile_measures(fields: Sequence[StructField], contract: Contract | None) -> list[Measure]:
    """What a writer could measure, and the most frequent values where they may be shown."""
    top = [
        Measure(field_.name, TOP, _text(field_), lambda text: F.call_function("approx_top_k", text, F.lit(TOP_VALUES)))
        for field_ in fields
        if may_show_values(field_.name, contract)
        and isinstance(field_.dataType, StringType | BooleanType | IntegralType | DateType)
    ]
    return [*measures_of(fields, contract), *top]


def _text(field_: StructField) -> Column:
    return F.substring(F.col(identifier(field_.name)).cast("string"), 1, _LONGEST_VALUE)


def _looked_at(frame: DataFrame, contract: Contract | None, by: Sequence[str]) -> dict[Values, Figures]:
    """The figures by partition; of the frame as a whole where there is none."""
    found: dict[Values, Figures] = {}
    profiled = [field_ for field_ in frame.schema.fields if field_.name not in by][:MOST_PROFILED]
    for fields in _chunks(profiled):
        measures = profile_measures(fields, contract)
        groups = [F.col(identifier(c)).cast("string").alias(f"g{place}") for place, c in enumerate(by)]
        for row in frame.groupBy(*groups).agg(*aggregates(measures)).collect():
            values = tuple(row[f"g{place}"] for place in range(len(by)))
            own = figures(measures, row.asDict())
            before = found.get(values, Figures(own.rows))
            found[values] = Figures(own.rows, {**before.columns, **own.columns})
    return found


def _chunks(fields: Sequence[StructField]) -> Iterator[Sequence[StructField]]:
    for start in range(0, max(len(fields), 1), COLUMNS_PER_PASS):
        yield fields[start : start + COLUMNS_PER_PASS]


def _inside(frame: DataFrame, columns: Sequence[str], partitions: Sequence[Values]) -> Column:
    """True in these partitions. Typed values, so that Delta skips all other files."""
    types = {field_.name: field_.dataType for field_ in frame.schema.fields}
    each = (
        balanced(
            Column.__and__,
            [
                F.col(identifier(c)).eqNullSafe(F.lit(value).cast(types[c]))
                for c, value in zip(columns, values, strict=True)
            ],
        )
        for values in partitions
    )
    return balanced(Column.__or__, list(each))


def _label(values: Sequence[str | None]) -> str:
    return " / ".join("null" if value is None else value for value in values)
