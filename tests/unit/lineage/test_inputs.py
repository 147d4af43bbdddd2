"""What a frame was read from: by the key of its dataset, whatever the relation; and what nobody has named."""

from __future__ import annotations

import cProfile
import pstats
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import dagster as dg
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from de_resources.lineage import LineageKind, column_lineage
from de_resources.lineage.inputs import alias_of, made_of, read_as
from de_resources.lineage.record import copied_columns, read_columns, recorded, undeclared_inputs
from de_resources.lineage.recorded import lineage_of
from de_resources.lineage.resolver import lineage_of_plan

pytestmark = pytest.mark.pattern("fine_grained_tracker", "dataset_tracker")

VISITS, TOPIC = dg.AssetKey(["bronze", "visits"]), dg.AssetKey(["sources", "topic"])

# As Spark 4.2 prints them.
JDBC = "Relation [id#10L,at#11] JDBCRelation(legacy visits) [numPartitions=1]"
BATCH = (
    "Relation [key#316,value#317,offset#320L] KafkaRelation(strategy=Subscribe[visits], start=EarliestOffsetRangeLimit, "
    "end=LatestOffsetRangeLimit)"
)
STREAM = (
    "~StreamingRelationV2 org.apache.spark.sql.kafka010.KafkaSourceProvider@2133d68c, kafka, "
    "org.apache.spark.sql.kafka010.KafkaSourceProvider$KafkaTable@6139033d, [kafka.bootstrap.servers=127.0.0.1:9, "
    "subscribe=visits], [key#309, value#310, offset#313L], StreamingRelation kafka, [key#302, value#303, offset#306L], "
    "name=<Unassigned>, name=<Unassigned>"
)


@pytest.mark.parametrize(
    ("relation", "columns"),
    [(JDBC, ["id#10L", "at#11"]), (BATCH, ["value#317"]), (STREAM, ["value#310", "offset#313L"])],
    ids=["jdbc", "topic", "stream"],
)
def test_a_relation_of_any_kind_has_the_columns_of_its_dataset(relation: str, columns: list[str]):
    plan = f"Project [{', '.join(columns)}]\n+- SubqueryAlias `sources/topic`\n   +- {relation}"
    names = [column.partition("#")[0] for column in columns]
    found = lineage_of_plan(plan, names, {"sources/topic"})
    assert found.complete, found.reasons
    assert {n: [(o.source, o.column, o.kind) for o in of] for n, of in found.columns.items()} == {
        name: [("sources/topic", name, LineageKind.DIRECT)] for name in names
    }
    assert found.inputs == ("sources/topic",)
    assert found.unnamed == ()


@pytest.mark.parametrize(
    ("relation", "place"),
    [(JDBC, "table legacy visits"), (BATCH, "topic visits"), (STREAM, "topic visits")],
    ids=["jdbc", "topic", "stream"],
)
def test_a_relation_that_nobody_named_says_what_it_reads(relation: str, place: str):
    found = lineage_of_plan(relation, [], {"sources/topic"})
    assert [read.place for read in found.unnamed] == [place]


@pytest.mark.parametrize("path", [["a.b", "c"], ["a", "b.c"], ["x`y", "z"], ["only"], ["a b", "c,d"]], ids=str)
def test_keys_with_dots_and_worse_are_told_apart(spark: SparkSession, path: list[str]):
    key, other = dg.AssetKey(path), dg.AssetKey(["a", "b", "c"])
    frame = read_as(spark.range(1).toDF("id"), key).join(read_as(spark.range(1).toDF("other"), other))
    found = column_lineage(frame, {alias_of(key), alias_of(other)})
    assert [(o.source, o.column) for o in found.columns["id"]] == [(alias_of(key), "id")]
    assert [(o.source, o.column) for o in found.columns["other"]] == [("a/b/c", "id")]


def test_rows_that_python_made_are_opaque_with_their_inputs(spark: SparkSession):
    rows = made_of(spark.createDataFrame([(1, "a")], "n int, word string"), TOPIC, ["value", "off, set"])
    found = column_lineage(rows.select((F.col("n") + 1).alias("m")), {"sources/topic"})
    assert [(o.column, o.kind) for o in found.columns["m"]] == [
        ("off, set", LineageKind.OPAQUE),
        ("value", LineageKind.OPAQUE),
    ]
    told = recorded(found, {"sources/topic": TOPIC})
    assert told["lineage/opaque"].value == ["m"]


def test_a_folder_that_nobody_named_is_found_by_the_physical_plan(
    spark: SparkSession, visits: DataFrame, tmp_path: Path
):
    root = tmp_path / "the lake"
    spark.createDataFrame([(1, "x")], "id long, word string").write.parquet(f"{root}/silver/hidden")
    hidden = spark.read.parquet(f"{root}/silver/hidden")
    frame = visits.join(hidden.persist(), "id").select("page", "word")
    try:
        found = column_lineage(frame, {"bronze.visits"})
    finally:
        hidden.unpersist()
    assert found.inputs == ("bronze.visits",)
    assert undeclared_inputs(found, {"bronze.visits"}, [str(root)]) == ["`silver/hidden`"]
    assert undeclared_inputs(found, {"bronze.visits", "silver/hidden"}, [str(root)]) == []
    assert undeclared_inputs(found, set(), ["/elsewhere"]) == [f"{root}/silver/hidden", "`bronze.visits`"]


def test_a_wide_plan_is_whole_also_in_a_thread_of_its_own(spark: SparkSession):
    wide = read_as(spark.createDataFrame([], ", ".join(f"c{n} int" for n in range(60))), VISITS)
    with ThreadPoolExecutor(1) as threads:
        found = threads.submit(column_lineage, wide.where("c1 > 0"), {"bronze/visits"}).result()
    assert found.complete, found.reasons
    assert all(found.columns.values())


def test_named_inputs_and_rows_of_the_program_are_no_hidden_reads(spark: SparkSession, visits: DataFrame):
    local = spark.createDataFrame([(1, "x")], "id long, word string")
    found = column_lineage(visits.join(local, "id").join(spark.range(3), "id"), {"bronze.visits"})
    assert found.unnamed == ()


def test_a_copy_and_a_page_tell_the_columns_of_their_source():
    copy = lineage_of(copied_columns(["id", "page"], VISITS) | {})
    assert copy is None, "metadata is read back from events only"
    entries = copied_columns(["id"], VISITS)
    assert entries["dagster/column_lineage"].deps_by_column == {"id": [dg.TableColumnDep(VISITS, "id")]}
    page = read_columns({VISITS: ["page", "id"]})
    assert page["lineage/conditions"].value == {"bronze/visits": ["id", "page"]}
    assert page["dagster/column_lineage"].deps_by_column == {}


@pytest.mark.parametrize("operator", ["Project [{made}]", "Aggregate [c0#0], [c0#0, {made}]"], ids=["select", "group"])
def test_two_thousand_columns_cost_what_four_times_five_hundred_cost(operator: str):
    assert _calls(operator, 2000) < 4.6 * _calls(operator, 500)


def _calls(operator: str, width: int) -> int:
    relation = f"Relation [{','.join(f'c{n}#{n}' for n in range(width))}] parquet"
    made = ", ".join(f"(c{n}#{n} + 1) AS out{n}#{width + n}" for n in range(width))
    plan = f"{operator.format(made=made)}\n+- SubqueryAlias `a/b`\n   +- {relation}"
    names = [*(["c0"] if "Aggregate" in operator else []), *(f"out{n}" for n in range(width))]
    with cProfile.Profile() as profile:
        found = lineage_of_plan(plan, names, {"a/b"})
    assert found.complete
    assert [o.column for o in found.columns[f"out{width - 1}"]] == [f"c{width - 1}"]
    return pstats.Stats(profile).total_calls  # type: ignore[attr-defined, no-any-return]
