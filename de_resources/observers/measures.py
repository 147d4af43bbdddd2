"""What is measured of a column, by its type and by its contract, as aggregates that need one pass and no grouping.

All of them are allowed in an `Observation`, and none can fail a write: they do not overflow, do not cast what may not be
cast, and take NaN, infinities, and columns of nothing but nulls. An observation interprets its aggregates, each for every
row: so there are few of them, and what they take (`Measure.input`) can be computed before, where it is compiled.

Distinct values are counted by a HyperLogLog sketch (a relative error of 1.6 % in two cases of three; exact for few values).
One KLL sketch tells of a number how many there are, the lowest and the highest, and the quantiles, within 1.3 % of the ranks.
Of personal columns, and of all columns of a table without a contract, there are counts only, never values.

Source: Apache DataSketches; Spark's `hll_sketch_agg`, `kll_sketch_agg_double` and `kll_sketch_agg_bigint`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
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
TOP = "top"
_PRESENT, _NUMBER, _DAY, _MOMENT = "present", "number", "day", "moment"

PROBABILITIES = (0.05, 0.25, 0.5, 0.75, 0.95)
"""Of the quantiles, in order."""
_ASKED = (0.0, *PROBABILITIES, 1.0)

Figure = int | float | str | Sequence[float] | Sequence[tuple[str, int]]
"""A number, a moment as text, quantiles, or the most frequent values with how often they come."""


@dataclass(frozen=True)
class Measure:
    """One figure of one column."""

    column: str
    name: str
    input: Column
    aggregate: Callable[[Column], Column]


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
    every = F.lit(1) if where is None else F.when(where, 1)
    return [
        Measure("", ROWS, every, F.count),
        *(m for field_ in fields for m in _of_column(field_, contract, where, sample)),
    ]


def aggregates(measures: Sequence[Measure], prefix: str = "m", inputs: Sequence[Column] = ()) -> list[Column]:
    """The aggregates under names of their place, since a column's own name may be any text.

    `inputs` are the columns that hold the measures' inputs, where these were computed before.
    """
    taken = inputs or [measure.input for measure in measures]
    each = zip(measures, taken, strict=True)
    return [measure.aggregate(column).alias(f"{prefix}{place}") for place, (measure, column) in enumerate(each)]


def figures(measures: Sequence[Measure], found: Mapping[str, Any], prefix: str = "m") -> Figures:
    """The figures from the results of `aggregates`."""
    rows = int(found.get(f"{prefix}0") or 0)
    columns: dict[str, dict[str, Figure]] = {}
    for place, measure in enumerate(measures[1:], start=1):
        value = found.get(f"{prefix}{place}")
        columns.setdefault(measure.column, {}).update(_figures_of(measure.name, value, rows))
    for own in columns.values():
        if _PRESENT in own:
            # Of a measurement that may be NaN both is known: how many are there, and how many of these are numbers.
            present, finite_ones = own.pop(_PRESENT), own.get(NULLS)
            own[NULLS] = rows - int(str(present))
            if finite_ones is not None:
                own[NOT_FINITE] = int(str(finite_ones)) - int(str(own[NULLS]))
    return Figures(rows, columns)


def _figures_of(name: str, value: Any, rows: int) -> dict[str, Figure]:
    if name == _PRESENT:
        return {_PRESENT: int(value or 0)}
    if name in (_NUMBER, _DAY, _MOMENT):
        return _sketched(name, value, rows)
    told = None if value is None else _plain(value)
    return {} if told is None or told == [] else {name: told}


def _sketched(name: str, value: Any, rows: int) -> dict[str, Figure]:
    """What a KLL sketch tells; without a value in it only that."""
    count = int(value["n"]) if value is not None else 0
    told: dict[str, Figure] = {NULLS: rows - count}
    if count and name == _NUMBER:
        low, *middle, high = value["q"]
        told |= {MIN: _plain(low), MAX: _plain(high), QUANTILES: [float(each) for each in middle]}
    elif count:
        told |= {MIN: _moment(name, value["q"][0]), MAX: _moment(name, value["q"][-1])}
    return told


def _moment(name: str, value: int) -> str:
    """Text of a day or a time that may lie outside of Python's own years."""
    import numpy as np

    return str(np.datetime64(value, "D" if name == _DAY else "us")).replace("T", " ").removesuffix(".000000")


def _of_column(
    field_: StructField, contract: Contract | None, where: Column | None, sample: Column | None
) -> Iterator[Measure]:
    name, type_ = field_.name, field_.dataType
    value = F.col(identifier(name))
    if where is not None:
        value = F.when(where, value)
    if sample is None and _has_countable_values(type_) and not _is_key(name, contract):
        # Hashed, since the sketch takes few types, and no empty text.
        yield Measure(name, DISTINCT, F.when(value.isNotNull(), F.xxhash64(value)), distinct)
    own = list(_of_values(name, value, type_, sample)) if may_show_values(name, contract) else []
    counted = any(measure.name in (_NUMBER, _DAY, _MOMENT) for measure in own)
    if not counted or (_is_float(type_) and sample is None):
        yield Measure(name, _PRESENT, value, F.count)
    yield from own


def distinct(hashed: Column) -> Column:
    """About how many different values there are."""
    return F.hll_sketch_estimate(F.hll_sketch_agg(hashed))


def sketched(kind: str) -> Callable[[Column], Column]:
    """How many numbers there are (`n`), and their lowest, quantiles and highest (`q`), from one sketch.

    An empty sketch fails when it is asked for quantiles. A name for the sketch, which is an array's only element here, saves
    a second one: an observation keeps one for each place where it is mentioned.
    """

    def told(sketch: Column) -> Column:
        count = F.call_function(f"kll_sketch_get_n_{kind}", sketch)
        asked = F.array(*map(F.lit, _ASKED))
        told_of = F.when(count > 0, F.call_function(f"kll_sketch_get_quantile_{kind}", sketch, asked))
        return F.struct(count.alias("n"), told_of.alias("q"))

    return lambda number: F.element_at(F.transform(F.array(F.call_function(f"kll_sketch_agg_{kind}", number)), told), 1)


def finite(number: Column, type_: DataType) -> Column:
    """The number, or null for NaN and infinities, which would be every minimum, maximum and quantile."""
    if not _is_float(type_):
        return number
    return F.when(F.abs(number) < F.lit(float("inf")), number)


def _of_values(name: str, value: Column, type_: DataType, sample: Column | None) -> Iterator[Measure]:
    if isinstance(type_, IntegralType | FractionalType):
        number = finite(value, type_)
        exact = isinstance(type_, IntegralType)
        as_number = number.cast("bigint" if exact else "double")
        if sample is not None:
            yield Measure(name, MIN, number, F.min)
            yield Measure(name, MAX, number, F.max)
            as_number = F.when(sample, as_number)
        yield Measure(
            name, _NUMBER if sample is None else QUANTILES, as_number, sketched("bigint" if exact else "double")
        )
    elif isinstance(type_, DateType):
        yield Measure(name, _DAY, F.unix_date(value).cast("bigint"), sketched("bigint"))
    elif isinstance(type_, TimestampType | TimestampNTZType):
        yield Measure(name, _MOMENT, F.unix_micros(value.cast("timestamp")), sketched("bigint"))
    elif isinstance(type_, BooleanType):
        yield Measure(name, TRUE, value, F.count_if)
    elif isinstance(type_, StringType | BinaryType):
        yield Measure(name, LONGEST, F.length(value), F.max)
    elif isinstance(type_, ArrayType | MapType):
        yield Measure(name, LONGEST, F.when(value.isNotNull(), F.size(value)), F.max)


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
    if isinstance(value, Row):
        return [float(each) for each in value["q"][1:-1]] if value["q"] else []
    if isinstance(value, list):
        pairs = all(isinstance(each, Row) for each in value)
        return [(each["item"], int(each["count"])) for each in value] if pairs else [float(each) for each in value]
    return value if isinstance(value, int | float | str) else float(value)
