"""A plan that cannot be understood gives an incomplete lineage with a reason, never an error or a wrong claim."""

from __future__ import annotations

import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from de_resources.lineage import Lineage, column_lineage
from de_resources.lineage.resolver import lineage_of_plan
from de_resources.lineage.tree import PlanFormatError

pytestmark = pytest.mark.pattern("fine_grained_tracker")

SOURCES = ("bronze.visits",)


STRANGE = [
    "a b", "a,b", "a, b", "[", "], [", "(", "a)#1", "#", "a#1, b", " AS ", "x AS y#2", "`", "a\nb", "a\n+- b", "é",
]  # fmt: skip


@pytest.mark.parametrize("name", STRANGE)
def test_strange_names_are_traced_or_reported(visits: DataFrame, name: str):
    quoted = "`" + name.replace("`", "``") + "`"
    frame = (
        visits.withColumnRenamed("page", name).withColumn("copy", F.upper(F.col(quoted))).select("id", quoted, "copy")
    )
    found = column_lineage(frame, SOURCES)
    assert list(found.columns) == ["id", name, "copy"]
    if found.complete:
        assert [by.column for by in found.columns[name]] == ["page"]
        assert [by.column for by in found.columns["copy"]] == ["page"]
    else:
        assert found.reasons


@pytest.mark.parametrize(
    "text", ["a\n+- b", " AS a#0, ", "id#0", "\n== Optimized Logical Plan ==\n", "... 3 more fields"]
)
def test_text_that_looks_like_a_plan_is_reported_when_it_confuses(visits: DataFrame, text: str):
    found = column_lineage(visits.select("id", F.concat("page", F.lit(text)).alias("p")), SOURCES)
    assert not found.complete or [by.column for by in found.columns["p"]] == ["page"]


def test_a_plan_that_was_cut_off_is_incomplete(spark: SparkSession, visits: DataFrame):
    setting = "spark.sql.debug.maxToStringFields"
    before = spark.conf.get(setting)
    spark.conf.set(setting, "3")
    try:
        found = column_lineage(visits, SOURCES)
    finally:
        spark.conf.set(setting, before)
    assert not found.complete
    assert any(setting in reason for reason in found.reasons)


def test_an_operator_without_a_rule_passes_its_columns_with_a_doubt():
    plan = "Teleport fast\n+- SubqueryAlias `bronze.visits`\n   +- Relation [id#1L,page#2] parquet"
    found = lineage_of_plan(plan, ["id", "page"], SOURCES)
    assert [[by.column for by in origins] for origins in found.columns.values()] == [["id"], ["page"]]
    assert found.reasons == ("Teleport is an operator that has no rule of lineage.",)


def test_an_attribute_from_nowhere_is_a_doubt_that_quotes_no_literal():
    plan = (
        "Project [concat(a@b.c, ghost#7) AS mail#9]\n+- SubqueryAlias `bronze.visits`\n   +- Relation [id#1L] parquet"
    )
    found = lineage_of_plan(plan, ["mail"], SOURCES)
    assert found.reasons == ("Project refers to attribute #7, which none of its inputs has.",)


def test_a_frame_without_a_readable_plan_has_a_reason():
    class Broken:
        columns = ("id",)

    found = column_lineage(Broken(), SOURCES)  # type: ignore[arg-type]
    assert found == Lineage({"id": ()}, complete=False, reasons=("The plan could not be read: AttributeError.",))


def test_a_plan_deeper_than_the_stack_of_python():
    depth = sys.getrecursionlimit() + 200
    levels = ["SubqueryAlias `bronze.visits`", "Relation [id#1L] parquet"]
    drawn = [f"{'   ' * at}+- {text}" for at, text in enumerate(["Project [id#1L]"] * depth + levels)]
    found = lineage_of_plan("\n".join(["Project [id#1L]", *drawn]), ["id"], SOURCES)
    assert found.complete
    assert [by.column for by in found.columns["id"]] == ["id"]


@pytest.mark.timeout(60)
def test_a_wide_list_full_of_open_brackets_does_not_hang(visits: DataFrame):
    wide = visits.selectExpr(*[f"concat(page, '({at}') AS c{at}" for at in range(500)])
    found = column_lineage(wide, SOURCES)
    assert found.complete
    assert {tuple(by.column for by in origins) for origins in found.columns.values()} == {("page",)}


OPERATORS = (
    *("Project [", "Aggregate [", "Union", "Relation [", "Generate explode(", "Expand [[", "MapInPandas f(", "WithCTE"),
    *("LateralJoin lateral-subquery#1 [", "Join LeftSemi, (", "Window [", "CTERelationRef 0, true, [", "Except All"),
    *("FlatMapCoGroupsInPandas 1, 1, f(", "SubqueryAlias `bronze.visits`", "Range", "View ("),
)
DRAWING = ("", "+- ", ":- ", ":  +- ", "   +- ", "      +- ")
TEXT = ("a#1", "b#2L", " AS c#3", ", ", "]", "[", "], [", ")", "(", "#", "`", "list#4", "x", " ")
LINES = st.builds(
    lambda drawing, operator, parts: drawing + operator + "".join(parts),
    st.sampled_from(DRAWING),
    st.sampled_from(OPERATORS),
    st.lists(st.sampled_from(TEXT), max_size=12),
)


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(lines=st.lists(LINES, max_size=6), names=st.lists(st.sampled_from(["a", "b", "c"]), max_size=3))
def test_any_text_gives_a_lineage_or_the_one_known_error(lines: list[str], names: list[str]):
    try:
        found = lineage_of_plan("\n".join(lines), names, SOURCES)
    except PlanFormatError:
        return
    assert list(found.columns) == list(dict.fromkeys(names))
    assert found.complete == (not found.reasons)
