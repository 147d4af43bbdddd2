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

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
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
    DoubleType,
    FractionalType,
    IntegerType,
    IntegralType,
    LongType,
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
_PRESENT, _FINITE, _NUMBER, _DAY, _MOMENT = "present", "finite", "number", "day", "moment"

MOST_CLOSE_LOOKS = 3
"""As many figures that are neither nulls nor bounds are measured where nobody says which columns matter: each costs about 2.5 %
of what it costs to write a table of 20 columns."""

PROBABILITIES = (0.05, 0.25, 0.5, 0.75, 0.95)
"""Of the quantiles, in order."""
_ASKED = (0.0, *PROBABILITIES, 1.0)

Figure = int | float | str | Sequence[float] | Sequence[tuple[str, int]]
"""A number, a moment as text, quantiles, or the most frequent values with how often they come."""


@dataclass(frozen=True)
class Measure:
    """One figure of one column. `computed`: the input is more than the column as it is."""

    column: str
    name: str
    input: Column
    aggregate: Callable[[Column], Column]
    computed: bool = True


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
    told: Container[str] = (),
    closely: Container[str] | None = None,
) -> list[Measure]:
    """The measures of these columns, over the rows for which `where` is true, or over all. The first one counts rows.

    Of the columns that are `told`, somebody else tells the nulls and the bounds: moments, and a key, are then not looked at.

    `sample` is true for the rows that the quantiles look at. With it distinct values are not counted: those of a part say
    nothing about the whole. Of columns that are not looked at `closely` there are nulls and bounds only; None: all are.
    """
    every = F.lit(1) if where is None else F.when(where, 1)
    return [
        Measure("", ROWS, every, F.count),
        *(
            measure
            for field_ in fields
            for measure in (
                _of_column(field_, contract, where, sample, field_.name in told)
                if closely is None or field_.name in closely or not _close_looks(field_, contract)
                else _that_add_up(field_, contract, where, field_.name in told, close=False)
            )
        ),
    ]


def looked_at_closely(fields: Sequence[StructField], contract: Contract | None) -> frozenset[str]:
    """The columns that are looked at closely where nobody says which matter: numbers first, then the others, in their order,
    while `MOST_CLOSE_LOOKS` allows."""
    looks = {field_.name: _close_looks(field_, contract) for field_ in fields}
    chosen, left = set[str](), MOST_CLOSE_LOOKS
    for name in sorted(looks, key=lambda name: not {_NUMBER} & set(looks[name])):
        if 0 < len(looks[name]) <= left:
            chosen.add(name)
            left -= len(looks[name])
    return frozenset(chosen)


def _close_looks(field_: StructField, contract: Contract | None) -> list[str]:
    """The figures of a column that are neither nulls nor bounds, by the names of their measures."""
    name, type_, is_key = field_.name, field_.dataType, _is_key(field_.name, contract)
    if is_key and isinstance(type_, IntegralType):
        return []  # of numbers that are all different nothing but the bounds is shown
    of_values = _look_at_values(type_) if may_show_values(name, contract) else ()
    return [*([DISTINCT] if _has_countable_values(type_) and not is_key else []), *of_values]


@cache
def _look_at_values(type_: DataType) -> tuple[str, ...]:
    """The same of values of a type. Kept, for each expression costs calls of the engine, and this is asked of every column."""
    measures = _of_values("", F.lit(None), type_, None)
    return tuple(measure.name for measure in measures if measure.name not in (_DAY, _MOMENT))


def sums_and_bounds_of(
    fields: Sequence[StructField],
    contract: Contract | None,
    *,
    told: Container[str] = (),
    closely: Container[str] | None = None,
) -> list[Measure]:
    """As `measures_of`, what is known of the whole once it is known of its parts (`together`). Sketches have no part in it."""
    counts = Measure("", ROWS, F.lit(1), F.count)
    return [
        counts,
        *(
            measure
            for field_ in fields
            for measure in _that_add_up(
                field_, contract, None, field_.name in told, close=closely is None or field_.name in closely
            )
        ),
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


def joined(seen: Figures, told: Mapping[str, Mapping[str, Figure]], fields: Sequence[StructField]) -> Figures:
    """What was seen of the rows, and what is told of some columns: nulls, and bounds where none were seen."""
    columns: dict[str, dict[str, Figure]] = {}
    for field_ in fields:
        own, other = dict(seen.columns.get(field_.name, {})), told.get(field_.name, {})
        if _is_float(field_.dataType) and NULLS in own and NULLS in other:
            # The sketch has taken numbers only: what it lacks is null, or none.
            own[NOT_FINITE] = int(str(own[NULLS])) - int(str(other[NULLS]))
        nulls = {NULLS: other[NULLS]} if NULLS in other else {}
        columns[field_.name] = {**other, **own, **nulls}
    return Figures(seen.rows, columns)


def without_nulls(seen: Figures, columns: Container[str]) -> Figures:
    """What was seen, where nobody tells how many of the values that are no numbers are null."""
    own = {c: {n: f for n, f in each.items() if n != NULLS or c not in columns} for c, each in seen.columns.items()}
    return Figures(seen.rows, own)


def together(parts: Sequence[Figures]) -> Figures:
    """The figures of the whole from those of its parts: counts are added, bounds are those of all.

    A count that a part with rows does not have is left out, for the sum of the others would be too low.
    """
    filled = [part for part in parts if part.rows]
    names = dict.fromkeys(column for part in parts for column in part.columns)
    columns = {name: _together([part.columns.get(name, {}) for part in filled or parts]) for name in names}
    return Figures(sum(part.rows for part in parts), columns)


def _together(parts: Sequence[Mapping[str, Figure]]) -> dict[str, Figure]:
    whole: dict[str, Figure] = {}
    for name, join in _JOINED.items():
        known: list[Any] = [part[name] for part in parts if name in part]
        if known and (join is not sum or len(known) == len(parts)):
            whole[name] = join(known)
    return whole


_JOINED: Mapping[str, Callable[[Sequence[Any]], Any]] = {
    NULLS: sum,
    MIN: min,
    MAX: max,
    NOT_FINITE: sum,
    TRUE: sum,
    LONGEST: max,
}


def _figures_of(name: str, value: Any, rows: int) -> dict[str, Figure]:
    if name == _PRESENT:
        return {_PRESENT: int(value or 0)}
    if name == _FINITE:
        return {NULLS: rows - int(value or 0)}
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
    field_: StructField, contract: Contract | None, where: Column | None, sample: Column | None, told: bool
) -> Iterator[Measure]:
    name, type_ = field_.name, field_.dataType
    value = F.col(identifier(name))
    if where is not None:
        value = F.when(where, value)
    if sample is None and _has_countable_values(type_) and not _is_key(name, contract):
        yield _distinct(name, value, type_, computed=where is not None)
    own = list(_of_values(name, value, type_, sample)) if may_show_values(name, contract) else []
    if told:
        # A sketch of a key or of moments would tell nothing else that is shown.
        known = {_DAY, _MOMENT, *((MIN, MAX) if isinstance(type_, IntegralType) else ())}
        exact_key = _is_key(name, contract) and isinstance(type_, IntegralType)
        yield from () if exact_key else (m for m in own if m.name not in known)
        return
    counted = any(measure.name in (_NUMBER, _DAY, _MOMENT) for measure in own)
    if not counted or (_is_float(type_) and sample is None):
        yield Measure(name, _PRESENT, value, F.count, computed=where is not None)
    yield from own


def _that_add_up(
    field_: StructField, contract: Contract | None, where: Column | None, told: bool, *, close: bool
) -> Iterator[Measure]:
    """Counts and bounds. Where a commit tells of the column, and nobody looks closely, nothing is left to measure."""
    name, type_ = field_.name, field_.dataType
    value = F.col(identifier(name))
    if where is not None:
        value = F.when(where, value)
    if not told:
        yield Measure(name, _PRESENT, value, F.count, computed=where is not None)
    if not may_show_values(name, contract):
        return
    if isinstance(type_, IntegralType | FractionalType):
        if told and isinstance(type_, IntegralType if close else IntegralType | DoubleType | DecimalType):
            return
        number = finite(value, type_)
        if isinstance(type_, DecimalType):
            number = number.cast("double")
        if close and _is_float(type_):
            yield Measure(name, _FINITE, number, F.count)
        yield Measure(name, MIN, number, F.min)
        yield Measure(name, MAX, number, F.max)
    elif close and not isinstance(type_, DateType | TimestampType | TimestampNTZType):
        yield from _of_values(name, value, type_, None)


def _distinct(name: str, value: Column, type_: DataType, *, computed: bool) -> Measure:
    if isinstance(type_, IntegerType | LongType):
        return Measure(name, DISTINCT, value, distinct, computed)
    if isinstance(type_, DateType):
        return Measure(name, DISTINCT, F.unix_date(value), distinct)
    # Hashed, since the sketch takes few types, and no empty text.
    return Measure(name, DISTINCT, F.when(value.isNotNull(), F.xxhash64(value)), distinct)


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
