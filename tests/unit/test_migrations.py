"""What a migration computes, on rows written by hand: both directions of each kind, and what neither side can say."""

from __future__ import annotations

from typing import Any

import pyspark.sql.types as T
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from de_resources.migrations import Migration, nest, remove, rename, retype
from de_resources.migrations.migration import NotAMigration, Sides, migrations_of

pytestmark = pytest.mark.pattern("schema_migrator")

TEXT, INT = T.StringType(), T.IntegerType()
RENAME = rename("renamed", "a b", "c`d", TEXT)
RETYPE = retype("retyped", "amount", TEXT, "amount_int", INT)
NEST = nest("nested", {"first name": TEXT, "age": INT}, into="person")
REMOVE = remove("removed", {"gone": TEXT})


def rows(
    spark: SparkSession, migration: Migration, sides: Sides, values: list[tuple[Any, ...]], schema: str
) -> list[Any]:
    frame = migration.stored(spark.createDataFrame(values, schema), sides)
    return [row.asDict(recursive=True) for row in frame.collect()]


@pytest.mark.parametrize(
    ("migration", "schema", "new_of"),
    [
        (RENAME, "`a b` string", {("x",): {"c`d": "x"}, (None,): {"c`d": None}}),
        (RETYPE, "amount string", {("12",): {"amount_int": 12}, ("twelve",): {"amount_int": None}}),
        (
            NEST,
            "`first name` string, age int",
            {
                ("Ann", None): {"person": {"first name": "Ann", "age": None}},
                (None, None): {"person": None},
            },
        ),
    ],
)
def test_the_new_side_is_computed_from_the_old_one(
    spark: SparkSession, migration: Migration, schema: str, new_of: dict[tuple[Any, ...], dict[str, Any]]
) -> None:
    known = [dict(zip(migration.old_names, old, strict=True)) for old in new_of]
    both = [old | new for old, new in zip(known, new_of.values(), strict=True)]
    assert rows(spark, migration, Sides.BOTH, list(new_of), schema) == both
    assert rows(spark, migration, Sides.NEW, list(new_of), schema) == list(new_of.values())
    assert rows(spark, migration, Sides.OLD, list(new_of), schema) == known


@pytest.mark.parametrize("type_", [T.TimestampType(), T.TimestampNTZType(), T.DateType()], ids=str)
def test_a_text_without_a_date_becomes_no_time(spark: SparkSession, type_: T.DataType) -> None:
    """`10:05` would be today's, and another day's in tomorrow's rerun."""
    migration = retype("timed", "said", TEXT, "at", type_)
    dateless = ("10:05", "T10:05:00", "2024", "2024-06")
    *without, whole = (
        spark.createDataFrame([(text,) for text in (*dateless, "2024-06-30")], "said string")
        .transform(lambda frame: migration.stored(frame, Sides.BOTH))
        .select("said", "at", F.expr(migration.loses))
        .collect()
    )
    # That a contraction would lose them keeps it from dropping them unseen.
    assert [tuple(row) for row in without] == [(text, None, True) for text in dateless]
    assert str(whole["at"]).startswith("2024-06-30")


def test_the_old_side_is_computed_from_the_new_one(spark: SparkSession) -> None:
    assert rows(spark, RETYPE, Sides.BOTH, [(7,)], "amount_int int") == [{"amount": "7", "amount_int": 7}]
    person = [(("Ann", 30),)]
    schema = "person struct<`first name`: string, age: int>"
    assert rows(spark, NEST, Sides.OLD, person, schema) == [{"first name": "Ann", "age": 30}]
    assert rows(spark, REMOVE, Sides.BOTH, [(1,)], "id int") == [{"id": 1, "gone": None}]
    assert rows(spark, REMOVE, Sides.NEW, [(1, "x")], "id int, gone string") == [{"id": 1}]


def test_a_frame_with_both_sides_is_filled_where_one_is_null_and_never_changed(spark: SparkSession) -> None:
    given = [("1", None), (None, 2), ("3", 4), (None, None), ("x", None)]
    found = rows(spark, RETYPE, Sides.BOTH, given, "amount string, amount_int int")
    assert [tuple(row.values()) for row in found] == [("1", 1), ("2", 2), ("3", 4), (None, None), ("x", None)]


def test_every_row_is_judged_once(spark: SparkSession) -> None:
    judged: dict[tuple[Any, ...], list[str]] = {
        ("1", 1): [],
        (None, None): [],
        ("1", None): ["old_alone"],
        (None, 1): ["new_alone"],
        ("1", 2): ["differs"],
        ("x", 2): ["differs"],
        ("x", None): ["loses"],  # no number: dropping the text loses it
        ("007", 7): ["loses"],
    }
    frame = spark.createDataFrame(list(judged), "amount string, amount_int int").coalesce(1)
    questions = ("old_alone", "new_alone", "differs", "loses")
    answers = frame.select(*(F.expr(getattr(RETYPE, q)).alias(q) for q in questions)).collect()
    assert [[q for q in questions if row[q]] for row in answers] == list(judged.values())


def test_a_struct_of_nulls_is_no_contradiction_of_null_columns(spark: SparkSession) -> None:
    schema = "`first name` string, age int, person struct<`first name`: string, age: int>"
    frame = spark.createDataFrame([(None, None, (None, None)), ("Ann", 1, ("Bob", 1))], schema)
    assert [row[0] for row in frame.select(F.expr(NEST.differs)).collect()] == [False, True]


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: rename("Title", "a", "b", TEXT), "lower-case"),
        (lambda: rename("same", "a", "A", TEXT), "twice"),
        (lambda: remove("nothing", {}), "old columns"),
        (lambda: migrations_of({"migrations": ["de_resources.migrations:nothing"]}), "nothing"),
        (lambda: migrations_of({"migrations": ["de_resources.migrations:rename"]}), "something else"),
    ],
)
def test_a_declaration_that_cannot_work_is_refused(make: Any, why: str) -> None:
    with pytest.raises(NotAMigration, match=why):
        make()
