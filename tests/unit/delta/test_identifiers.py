"""Names in SQL: whatever they hold, they stay names."""

import pytest
from examples import generated
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, LongType, MapType, StringType, StructField, StructType

from de_resources.delta.write.merge_rule import merge_rule
from de_resources.sql.identifiers import (
    UnquotableName,
    UnsafeIdentifier,
    UnstorableName,
    column_texts,
    identifier,
    quoted_path,
    require_folder_name,
    type_text,
)

HOSTILE = [
    "user-agent", "größe", "1", "a.b", "a`b", "``", "`; DROP TABLE x; --", "x:STRING>", "STRUCT<", "/*", "'", '"',
    "\\", "\\u0060", "select", "*", "a#12", "a AS b#3", "$x", "a\0b", "?", ":p", "|", "[0]", "\u2028",
]  # fmt: skip
MAPPED_ONLY = ["event time", "a,b", "a;b", "{changes}", "f(x)", "a=b", "a\nb", "a\tb", "a:LONG>,evil:STRING,b"]

# Letters of every kind, and above all the signs that mean something in SQL, in DDL, or to the engine's name parser.
NAMES = st.text(st.one_of(st.sampled_from("`.;,'\"\\-#$ {}()<>:=|*?/\n\t"), st.characters(codec="utf-8")), min_size=1)


def nested(name: str) -> DataType:
    """The name at every depth that a type has."""
    inner = StructType([StructField(name, LongType()), StructField("plain", StringType())])
    return StructType([StructField(name, ArrayType(MapType(StringType(), inner))), StructField("other", inner)])


@given(NAMES.filter(lambda name: "${" not in name))
def test_a_quoted_name_ends_at_its_last_quote(name: str) -> None:
    """Ground truth is SQL's rule: between the quotes, a quote stands for itself only where it is doubled."""
    text = identifier(name)
    assert (text[0], text[-1]) == ("`", "`")
    inside = text[1:-1]
    assert "`" not in inside.replace("``", "")
    assert inside.replace("``", "`") == name


def test_the_engine_reads_back_the_names_that_were_quoted(spark: SparkSession) -> None:
    """Generated names, some dozens of them in one schema."""
    quotable = NAMES.filter(lambda name: "${" not in name)
    unique = list({name.casefold(): name for name in generated(quotable, 400)}.values())
    assert len(unique) > 150
    for start in range(0, len(unique), 50):
        engine_reads_back(spark, unique[start : start + 50])


def engine_reads_back(spark: SparkSession, names: list[str]) -> None:
    schema = StructType([StructField(name, nested(name)) for name in names])
    ddl = ", ".join(column_texts(schema, mapped=True).values())
    assert StructType.fromDDL(ddl) == schema
    columns = [F.col(identifier(name)).getField(name) for name in names]
    read = spark.createDataFrame([], schema).select(*columns, *(F.expr(identifier(n)) for n in names))
    assert read.columns[len(names) :] == names


@pytest.mark.parametrize("name", [*HOSTILE, *MAPPED_ONLY])
def test_the_name_of_a_field_stays_a_name_at_every_depth(spark: SparkSession, name: str) -> None:
    declared = spark.createDataFrame([], f"{identifier(name)} {type_text(nested(name))}").schema
    assert declared == StructType([StructField(name, nested(name))])


@pytest.mark.parametrize("name", ["", "a${x}b", "${env:HOME}", "\ud800"])
def test_a_name_that_sql_cannot_say_is_refused(name: str) -> None:
    with pytest.raises(UnquotableName, match="Rename it"):
        identifier(name)
    with pytest.raises(UnquotableName):
        type_text(nested(name))


@pytest.mark.parametrize("name", MAPPED_ONLY)
@pytest.mark.parametrize("depth", ["column", "field"])
def test_a_name_that_only_a_mapping_table_can_have_is_said(name: str, depth: str) -> None:
    schema = StructType([StructField(name, LongType()) if depth == "column" else StructField("v", nested(name))])
    with pytest.raises(UnstorableName, match="columnMapping"):
        column_texts(schema, mapped=False)
    assert column_texts(schema, mapped=True)


@pytest.mark.parametrize("name", ["id", "_x", "Visit_Id2", "x" * 128])
def test_a_plain_name_is_a_folders(name: str) -> None:
    require_folder_name(name, "layer")


@pytest.mark.parametrize(
    "name", ["", "1a", "a b", "a.b", "a`b", "a'b", "..", "../x", "a/b", "é", "\uff41", "a\n", "a\0", "x" * 129, "%2e"]
)
def test_a_folder_of_another_name_is_refused(name: str) -> None:
    with pytest.raises(UnsafeIdentifier) as caught:
        require_folder_name(name, "layer")
    assert (caught.value.what, caught.value.name) == ("layer", name)


def test_a_location_cannot_leave_its_quotes() -> None:
    assert quoted_path("/lake/a`; DROP") == "delta.`/lake/a``; DROP`"


@given(st.lists(NAMES, min_size=1, max_size=4))
def test_a_merge_predicate_may_quote_its_columns(names: list[str]) -> None:
    quoted = ["`" + name.replace("`", "``") + "`" for name in names]
    predicate = " AND ".join(f"s.{name} = t.{name}" for name in quoted)
    assert merge_rule({"merge_predicate": predicate}, None, None).key == tuple(names)
