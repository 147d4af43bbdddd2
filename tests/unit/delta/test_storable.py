"""What no table can hold, asked of a schema alone."""

import pytest
from pyspark.sql.types import (
    ArrayType,
    CalendarIntervalType,
    DataType,
    DayTimeIntervalType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
    VariantType,
    YearMonthIntervalType,
)

from de_resources.delta.write.storable import UnstorableFrame, require_storable

pytestmark = pytest.mark.pattern("data_overwrite")


def columns(*fields: tuple[str, DataType]) -> StructType:
    return StructType([StructField(name, type_) for name, type_ in fields])


LONG, TEXT = LongType(), StringType()


@pytest.mark.parametrize(
    "schema",
    [
        columns(),
        columns(("a", LONG), ("b", MapType(TEXT, columns(("a", LONG)))), ("c", VariantType())),
        columns(("nothing", NullType())),
        columns(("a", columns(("a", LONG))), ("b", columns(("A", LONG)))),
    ],
    ids=["no columns", "maps and variants", "a column of nulls", "one name at several places"],
)
def test_what_a_table_can_hold_is_taken(schema: StructType) -> None:
    require_storable(schema, "silver.rows")


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (columns(("a", LONG), ("a", TEXT)), "2 columns are called `a`"),
        (columns(("id", LONG), ("Id", LONG), ("ID", LONG)), "3 columns are called `id`"),
        (columns(("s", columns(("a", LONG), ("A", LONG)))), "2 columns are called `s.a`"),
        (columns(("s", columns())), "`s` is a struct without fields"),
        (columns(("l", ArrayType(NullType()))), "`l.element` has no type"),
        (
            columns(
                ("m", MapType(TEXT, ArrayType(columns(("v", NullType()))))),
            ),
            "`m.value.element.v` has no type",
        ),
        (columns(("v", DayTimeIntervalType(0, 0))), "`v` is interval day"),
        (columns(("m", MapType(YearMonthIntervalType(0, 1), LONG))), "`m.key` is interval year to month"),
        (columns(("s", columns(("v", CalendarIntervalType())))), "`s.v` is interval"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_it_cannot_hold_is_named_by_its_path(schema: StructType, said: str) -> None:
    with pytest.raises(UnstorableFrame) as caught:
        require_storable(schema, "silver.rows")
    (problem,) = caught.value.problems
    assert problem.startswith(said)
    assert "`silver.rows`" in str(caught.value)


def test_everything_in_the_way_is_said_at_once() -> None:
    schema = columns(("a", LONG), ("A", LONG), ("s", columns()), ("v", CalendarIntervalType()))
    with pytest.raises(UnstorableFrame) as caught:
        require_storable(schema, "silver.rows")
    assert len(caught.value.problems) == 3
