"""What is measured of a column, by its type and by its contract, as aggregates that need one pass and no grouping.

All of them are allowed in an `Observation`, and none can fail a write: they do not overflow, do not cast what may not be
cast, and take NaN, infinities, and columns of nothing but nulls. Distinct values are counted by a HyperLogLog sketch (a
relative error of 1.6 % in two cases of three; exact for few values), quantiles are taken from a KLL sketch (within 1.3 % of
the ranks). Of personal columns, and of all columns of a table without a contract, there are counts only, never values.

Source: Apache DataSketches; Spark's `hll_sketch_agg` and `kll_sketch_agg_double`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import Column, Row
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    FractionalType,
    IntegralType,
    MapType,
    StringType,
    StructField,
    TimestampNTZType,
    TimestampType,
)

from de_resources.contract import Contract
from de_resources.sql.identifiers import identifier

ROWS = "rows"
NULLS, DISTINCT, MIN, MAX = "nulls", "distinct", "min", "max"
QUANTILES, NOT_FINITE, TRUE, LONGEST = "quantiles", "not_finite", "true", "longest"
PRESENT, TOP = "present", "top"

PROBABILITIES = (0.05, 0.25, 0.5, 0.75, 0.95)
"""Of the quantiles, in order."""

Figure = int | float | str | Sequence[float] | Sequence[tuple[str, int]]
"""A number, a moment as text, quantiles, or the most frequent values with how often they come."""


@dataclass(frozen=True)
class Measure:
    """One figure of one column."""

    column: str
    name: str
    aggregate: Column


@dataclass(frozen=True)
class Figures:
    """What was measured: rows, and by column the figures by their names. A figure that nothing had a part in is left out."""

    rows: int
    columns: Mapping[str, Mapping[str, Figure]] = field(default_factory=dict)


def measures_of(
    fields: Sequence[StructField],
    contract: Contract | None,
    *,
    where: Column | None = None,
    sample: Column | None = None,
) -> list[Measure]:
    """The measures of these columns, over the rows for which `where` is true, or over all. The first one counts rows.

    `sample` is true for the rows that the quantiles look at. With it distinct values are not counted: those of a part say
    nothing about the whole.
    """
    rows = F.count(F.lit(1)) if where is None else F.count_if(where)
    return [Measure("", ROWS, rows), *(m for field_ in fields for m in _of_column(field_, contract, where, sample))]


def aggregates(measures: Sequence[Measure], prefix: str = "m") -> list[Column]:
    """The aggregates under names of their place, since a column's own name may be any text."""
    return [measure.aggregate.alias(f"{prefix}{place}") for place, measure in enumerate(measures)]


def figures(measures: Sequence[Measure], found: Mapping[str, Any], prefix: str = "m") -> Figures:
    """The figures from the results of `aggregates`."""
    rows = int(found.get(f"{prefix}0") or 0)
    columns: dict[str, dict[str, Figure]] = {}
    for place, measure in enumerate(measures[1:], start=1):
        value = found.get(f"{prefix}{place}")
        own = columns.setdefault(measure.column, {})
        if measure.name == PRESENT:
            own[NULLS] = rows - int(value or 0)
        elif value is not None:
            own[measure.name] = _plain(value)
    return Figures(rows, columns)


def _of_column(
    field_: StructField, contract: Contract | None, where: Column | None, sample: Column | None
) -> Iterator[Measure]:
    name, type_ = field_.name, field_.dataType
    value = F.col(identifier(name))
    if where is not None:
        value = F.when(where, value)
    yield Measure(name, PRESENT, F.count(value))
    if sample is None and _has_countable_values(type_) and not _is_key(name, contract):
        yield Measure(name, DISTINCT, distinct(value))
    if may_show_values(name, contract):
        for figure, aggregate in _of_values(value, type_, sample):
            yield Measure(name, figure, aggregate)


def distinct(value: Column) -> Column:
    """About how many different values there are. Hashed first: the sketch itself takes few types, and no empty text."""
    hashed = F.when(value.isNotNull(), F.xxhash64(value))
    return F.hll_sketch_estimate(F.hll_sketch_agg(hashed))


def quantiles(number: Column) -> Column:
    """The quantiles of a double without NaN; null where there is no value, of which the sketch could not be asked."""
    sketch = F.kll_sketch_agg_double(number)
    asked = F.array(*map(F.lit, PROBABILITIES))
    return F.when(F.count(number) > 0, F.kll_sketch_get_quantile_double(sketch, asked))


def finite(number: Column, type_: DataType) -> Column:
    """The number, or null for NaN and infinities, which would be every minimum, maximum and quantile."""
    if not _is_float(type_):
        return number
    return F.when(F.abs(number) < F.lit(float("inf")), number)


def _of_values(value: Column, type_: DataType, sample: Column | None) -> Iterator[tuple[str, Column]]:
    if isinstance(type_, IntegralType | FractionalType):
        number = finite(value, type_)
        as_double = number.cast("double")
        yield MIN, F.min(number)
        yield MAX, F.max(number)
        yield QUANTILES, quantiles(as_double if sample is None else F.when(sample, as_double))
        if _is_float(type_):
            yield NOT_FINITE, F.count(value) - F.count(number)
    elif isinstance(type_, DateType | TimestampType | TimestampNTZType):
        # As text: a year beyond 9999 is no datetime of Python's.
        yield MIN, F.min(value).cast("string")
        yield MAX, F.max(value).cast("string")
    elif isinstance(type_, BooleanType):
        yield TRUE, F.count_if(value)
    elif isinstance(type_, StringType | BinaryType):
        yield LONGEST, F.max(F.length(value))
    elif isinstance(type_, ArrayType | MapType):
        yield LONGEST, F.max(F.when(value.isNotNull(), F.size(value)))


def _is_float(type_: DataType) -> bool:
    return isinstance(type_, FractionalType) and not isinstance(type_, DecimalType)


def _has_countable_values(type_: DataType) -> bool:
    """Whether values repeat: those of measurements and moments do not, and nested ones are not hashed."""
    return isinstance(type_, StringType | IntegralType | DateType)


def may_show_values(name: str, contract: Contract | None) -> bool:
    """Whether the contract has the column, and says of it that it holds nothing personal."""
    return contract is not None and name in contract.column_names and name not in contract.personal


def _is_key(name: str, contract: Contract | None) -> bool:
    """Whether every row has a value of its own, by the contract."""
    return contract is not None and contract.key == (name,)


def _plain(value: Any) -> Figure:
    """What Dagster's metadata and JSON can hold."""
    if isinstance(value, list):
        pairs = all(isinstance(each, Row) for each in value)
        return [(each["item"], int(each["count"])) for each in value] if pairs else [float(each) for each in value]
    return value if isinstance(value, int | float | str) else float(value)
