"""Every layout gives the record back as it came, and the computed columns without a look at it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType
from test_visit_parser import line

from de_assets.transforms.data_value.wrapper import (
    ComputedNested,
    Flat,
    NameTaken,
    RawNested,
    Tables,
    TwoTables,
    WrongColumns,
)
from de_assets.transforms.error_management.visit_parser import parse_visits
from de_resources.compat.plans import formatted_plan
from de_resources.errors import PermanentError

pytestmark = pytest.mark.pattern("wrapper")

RECORD = ("id", "user-agent", "a.b", "line", "of`it`")
SCHEMA = "id INT, `user-agent` STRING, `a.b` BINARY, line STRING, `of``it``` STRUCT<`x.y`: BINARY, `-`: ARRAY<STRING>>"
LAYOUTS: dict[str, Any] = {
    "computed nested": ComputedNested(),
    "raw nested": RawNested(),
    "flat": Flat(RECORD),
    "two tables": TwoTables(("id",)),
}
LINES = (
    '{"price": 1.10,  "of_tomorrow": [1]}',
    '{"b": 1, "a": 2, "b": 3}',
    '{"e": 1e2, "u": "\\u0041", "big": 12345678901234567890.0}',
    ' {"page":"/"}\r\n',
)
HOSTILE = (None, "", " ", "1.10", "null", "\0", "é", "e\u0301", "\ufeff", "\u2028", *LINES)
BYTES = (None, b"", b"\xff\xfe\x00", b"\xed\xa0\x80", b" 1.10 ")
Record = tuple[int, str | None, bytes | None, str | None, tuple[bytes | None, list[str | None]] | None]


def computed() -> dict[str, Column]:
    """Computed columns with names of the record's own kind: one is named as a column of the record is."""
    length = F.octet_length(F.col("`a.b`"))
    return {"line": F.get_json_object("line", "$.price"), "size.of": length, "twice": F.col("id") * 2}


def by_hand(record: Record) -> tuple[str | None, int | None, int]:
    """The same computed values: one line of `HOSTILE` has a price, which the engine tells without its zero."""
    return ("1.1" if record[3] == LINES[0] else None, None if record[2] is None else len(record[2]), 2 * record[0])


def plain(row: Row) -> Record:
    """As it was given: Spark hands bytes out in a type of its own."""
    number, agent, signs, text, nested = row
    inside = None if nested is None else (None if nested[0] is None else bytes(nested[0]), nested[1])
    return number, agent, None if signs is None else bytes(signs), text, inside


HOSTILE_RECORDS: list[Record] = [
    (
        number,
        HOSTILE[number],
        BYTES[number % 5],
        HOSTILE[-1 - number],
        None if number % 3 else (BYTES[number % 5], [None]),
    )
    for number in range(len(HOSTILE))
]


def generated() -> list[Record]:
    """What every layout has to keep, and after it what hypothesis finds."""
    found = list(HOSTILE_RECORDS)
    text = st.sampled_from(HOSTILE) | st.text(max_size=12)
    signs = st.sampled_from(BYTES) | st.binary(max_size=12)
    nested = st.none() | st.tuples(signs, st.lists(text, max_size=3))

    @given(text, signs, text, nested)
    @settings(max_examples=150, deadline=None, database=None)
    def collect(agent: str | None, some: bytes | None, line: str | None, inside: Any) -> None:
        found.append((len(found), agent, some, line, inside))

    collect()
    return found


class Lake(NamedTuple):
    """Records, and in every layout what is read from the files that they were written to."""

    records: list[Record]
    schema: StructType
    wrapped: dict[str, tuple[Any, Any]]


def read(spark: SparkSession, frame: DataFrame, path: Path) -> DataFrame:
    """Back from a file such as a table's are; a table's log is no part of a layout, and takes the engine longest to read."""
    pq.write_table(frame.toArrow(), path)
    return spark.read.parquet(str(path))


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Stored, because the engine sees through a wrapper that is taken off again before anything is written."""
    folder, given = tmp_path_factory.mktemp("wrapped"), generated()
    records = spark.createDataFrame(given, SCHEMA).localCheckpoint()
    wrapped: dict[str, tuple[Any, Any]] = {}
    for name, layout in LAYOUTS.items():
        made = layout.wrap(records, computed())
        frames = made if isinstance(made, Tables) else (made,)
        tables = [read(spark, frame, folder / f"{name} {number}") for number, frame in enumerate(frames)]
        wrapped[name] = layout, Tables(*tables) if len(tables) > 1 else tables[0]
    return Lake(given, records.schema, wrapped)


def as_given(frame: DataFrame) -> list[Record]:
    return sorted((plain(row) for row in frame.collect()), key=lambda record: record[0])


@pytest.mark.parametrize("name", LAYOUTS)
def test_any_stored_record_comes_back_as_it_was(lake: Lake, name: str) -> None:
    layout, frame = lake.wrapped[name]
    back = layout.unwrap(frame)
    assert back.schema == lake.schema, "no column is lost, renamed, moved or of another type"
    assert as_given(back) == lake.records


def test_written_again_from_its_parts_every_line_would_be_another(spark: SparkSession) -> None:
    """The trap: what the tests above compare would not survive a wrapper that parses and writes again."""
    lines = spark.createDataFrame([(text,) for text in LINES], "line STRING")
    again = [row[0] for row in lines.select(F.to_json(F.from_json("line", "MAP<STRING, STRING>"))).collect()]
    assert not set(again) & set(LINES)
    assert [json.dumps(json.loads(text)) for text in LINES] != list(LINES)


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_layout_has_the_same_computed_columns(lake: Lake, name: str) -> None:
    layout, frame = lake.wrapped[name]
    table = layout.computed(frame)
    assert table.columns == ["line", "size.of", "twice"]
    told = sorted((tuple(row) for row in table.collect()), key=lambda row: row[2])
    assert told == [by_hand(record) for record in lake.records]


def read_schemas(frame: DataFrame) -> list[str]:
    """What each scan of the physical plan takes out of the files."""
    return re.findall(r"^ReadSchema: (.*)$", formatted_plan(frame), re.MULTILINE)


NUMBERS = "line:string,size.of:int,twice:int"


@pytest.mark.parametrize(
    ("name", "all_computed", "one"),
    [
        ("computed nested", f"struct<computed:struct<{NUMBERS}>>", "struct<computed:struct<size.of:int>>"),
        ("raw nested", f"struct<{NUMBERS}>", "struct<size.of:int>"),
        (
            "flat",
            "struct<computed_line:string,computed_size.of:int,computed_twice:int>",
            "struct<computed_size.of:int>",
        ),
        ("two tables", f"struct<{NUMBERS}>", "struct<size.of:int>"),
    ],
)
def test_who_reads_computed_columns_does_not_read_the_record(
    lake: Lake, name: str, all_computed: str, one: str
) -> None:
    layout, frame = lake.wrapped[name]
    table = layout.computed(frame)
    assert read_schemas(table) == [all_computed]
    assert read_schemas(table.select("`size.of`")) == [one]
    assert read_schemas(table.where(F.col("`size.of`") > 1).select("`size.of`")) == [one]


def test_a_field_of_a_nested_record_is_read_without_the_others(lake: Lake) -> None:
    layout, frame = lake.wrapped["raw nested"]
    assert read_schemas(layout.unwrap(frame).select("`user-agent`")) == ["struct<raw:struct<user-agent:string>>"]


def test_the_parsed_visits_of_the_graph_are_in_the_flat_layout(spark: SparkSession, tmp_path: Path) -> None:
    """Its one column of the record is `raw`, and the computed ones need no prefix."""
    layout = Flat(("raw",), prefix="")
    lines = [line(), line(release="2024.3") + b"  ", b'{"price": 1.10}']
    parsed = parse_visits(spark.createDataFrame([(each,) for each in lines], "payload BINARY"), "payload")
    table = read(spark, parsed.drop("payload"), tmp_path / "visits")
    assert sorted(row.raw.encode() for row in layout.unwrap(table).collect()) == sorted(lines)
    (schema,) = read_schemas(layout.computed(table))
    assert "visit_id:string" in schema
    assert "raw" not in schema


def test_rows_of_the_computed_table_find_their_own_records(lake: Lake) -> None:
    layout, tables = lake.wrapped["two tables"]
    some = Tables(tables.original, tables.computed.where("twice IN (2, 6)"))
    assert as_given(layout.unwrap(some)) == [lake.records[1], lake.records[3]]


def test_one_name_for_two_columns_is_refused_and_named(spark: SparkSession) -> None:
    records = spark.createDataFrame([(1, "a")], "id INT, Page STRING")
    page = {"page": F.lower("Page")}

    def refused(wrap: Callable[..., Any], of: DataFrame, values: dict[str, Column], name: str, advice: str) -> None:
        with pytest.raises(NameTaken, match=f"(?s)`{name}`.*{advice}") as found:
            wrap(of, values)
        assert found.value.name == name

    columns = ("id", "Page")
    refused(Flat(columns, prefix="").wrap, records, page, "page", "give the computed ones another `prefix`")
    refused(Flat(columns, prefix="P").wrap, records, {"age": F.lit(1)}, "Page", "another `prefix`")
    refused(RawNested().wrap, records, {"Raw": F.lit(1)}, "raw", "another `column`")
    refused(ComputedNested("page").wrap, records, {"n": F.lit(1)}, "page", "another `column`")
    refused(TwoTables(("Page",)).wrap, records, page, "page", "the key is in both tables")
    for layout in (ComputedNested(), RawNested(), Flat(columns), TwoTables(("id",))):
        refused(
            layout.wrap,
            records,
            {"n": F.lit(1), "N": F.lit(2)},
            "computed_N" if layout == Flat(columns) else "N",
            "rename one",
        )


def test_what_is_wrapped_is_not_wrapped_again(spark: SparkSession) -> None:
    """In one table it is refused; the table of the records is what it was, and gives the same two tables again."""
    records = spark.createDataFrame([(1, " a ")], "id INT, line STRING")
    values = {"text": F.trim("line")}
    flat, two = Flat(("id", "line")), TwoTables(("id",))
    for layout, error in ((ComputedNested(), NameTaken), (RawNested(), NameTaken), (flat, WrongColumns)):
        with pytest.raises(error, match=r"wrapped already|is not wrapped again"):
            layout.wrap(layout.wrap(records, values), values)
    once = two.wrap(records, values)
    again = two.wrap(once.original, values)
    assert [frame.collect() for frame in again] == [frame.collect() for frame in once] == [[(1, " a ")], [(1, "a")]]


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_table_that_was_not_wrapped_is_not_unwrapped(spark: SparkSession, name: str) -> None:
    other = spark.createDataFrame([(1,)], "other INT")
    table = Tables(other, other) if name == "two tables" else other
    for taken in (LAYOUTS[name].unwrap, LAYOUTS[name].computed):
        with pytest.raises(WrongColumns, match="The table lacks `") as found:
            taken(table)
        assert found.value.missing
        assert isinstance(found.value, PermanentError)


def test_a_layout_that_can_give_nothing_back_is_refused(spark: SparkSession) -> None:
    records = spark.createDataFrame([(1,)], "id INT")
    with pytest.raises(ValueError, match="name the columns in `key`"):
        TwoTables(())
    with pytest.raises(ValueError, match="name them in `record`"):
        Flat(())
    with pytest.raises(WrongColumns, match="The record lacks `visit_id`"):
        TwoTables(("visit_id",)).wrap(records, {"n": F.lit(1)})
    with pytest.raises(ValueError, match="nothing is computed"):
        RawNested().wrap(records, {})


def keyed(spark: SparkSession, *keys: str | None) -> DataFrame:
    return spark.createDataFrame([(key, "a secret") for key in keys], "key STRING, line STRING")


def fails(frame: DataFrame) -> str:
    with pytest.raises(PySparkException) as found:
        frame.collect()
    assert "secret" not in str(found.value)
    return str(found.value)


def test_a_record_without_a_key_stops_both_tables(spark: SparkSession) -> None:
    values = {"size": F.length("line")}
    for frame in TwoTables(("key",)).wrap(keyed(spark, "a", None), values):
        assert "the key `key` is null in a record" in fails(frame)
    # Rows that were removed before are not refused.
    kept = TwoTables(("key",)).wrap(keyed(spark, "a", None).where("key IS NOT NULL"), values)
    assert [frame.count() for frame in kept] == [1, 1]
    assert [len(frame.collect()) for frame in kept] == [1, 1]


def test_a_join_that_would_multiply_or_lose_records_fails(spark: SparkSession) -> None:
    layout, values = TwoTables(("key",)), {"size": F.length("line")}
    one, twice = layout.wrap(keyed(spark, "a"), values), layout.wrap(keyed(spark, "a", "b", "a"), values)
    for original, found in ((twice.original, twice.computed), (twice.original, one.computed)):
        assert "a key comes twice" in fails(layout.unwrap(Tables(original, found)))
    assert "a key comes twice" in fails(layout.unwrap(Tables(one.original, twice.computed.where("key = 'a'"))))
    other = layout.wrap(keyed(spark, "a", "c"), values)
    assert "a row has no record" in fails(layout.unwrap(Tables(one.original, other.computed)))
