"""Lineage of frames against what their code says, one construct at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pandas as pd
import pytest
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from de_resources.lineage import MARK

pytestmark = pytest.mark.pattern("fine_grained_tracker")


def test_an_input_is_its_own_direct_source(visits, trace):
    found = trace(visits.select("id", "page"))
    assert found.columns == {"id": "v.id direct", "page": "v.page direct"}
    assert found.dependencies == set(), "the reader's choice of partitions is no dependency"


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        pytest.param(lambda: F.col("page"), "v.page direct", id="rename"),
        pytest.param(lambda: F.lit("page #1, (x"), "", id="literal"),
        pytest.param(lambda: F.current_timestamp(), "", id="clock"),
        pytest.param(lambda: F.col("id").cast("string"), "v.id transformed", id="cast"),
        pytest.param(lambda: F.concat("page", F.lit(")"), "id"), "v.id transformed, v.page transformed", id="function"),
        pytest.param(lambda: F.lit("(") == F.col("page"), "v.page transformed", id="bracket in a literal"),
        pytest.param(lambda: F.concat("page", F.lit(" AS a, #12")), "v.page transformed", id="syntax in a literal"),
        pytest.param(lambda: F.concat("page", F.lit("two\nlines")), "v.page transformed", id="line feed in a literal"),
        pytest.param(
            lambda: F.when(F.col("page") == "/", F.col("id")).otherwise(F.col("user_id")),
            "v.id transformed, v.page transformed, v.user_id transformed",
            id="case when",
        ),
        pytest.param(lambda: F.col("geo.city"), "v.geo transformed", id="struct access"),
        pytest.param(
            lambda: F.struct("id", F.col("page").alias("p")), "v.id transformed, v.page transformed", id="struct"
        ),
        pytest.param(
            lambda: F.expr("named_struct('a', id, 'b', page)"),
            "v.id transformed, v.page transformed",
            id="named_struct",
        ),
        pytest.param(
            lambda: F.col("geo").withField("n", F.col("id")), "v.geo transformed, v.id transformed", id="withField"
        ),
        pytest.param(lambda: F.col("tags")[0], "v.tags transformed", id="array access"),
        pytest.param(
            lambda: F.transform("tags", lambda tag: F.concat(tag, "page")),
            "v.page transformed, v.tags transformed",
            id="higher-order function",
        ),
        pytest.param(lambda: F.col("page").isin("a", "b"), "v.page transformed", id="in"),
    ],
)
def test_expression(visits, trace, expression: Callable[[], Column], expected: str):
    assert trace(visits.select("id", expression().alias("out"), "seconds")).columns == {
        "id": "v.id direct",
        "out": expected,
        "seconds": "v.seconds direct",
    }


def test_kinds_add_up_along_a_chain_and_aliases_do_not_matter(visits, trace):
    first = visits.alias("a").select(F.col("a.page").alias("p")).alias("b")
    chained = first.select(F.upper("b.p").alias("q")).alias("c").withColumnRenamed("q", "r").withColumn("s", F.col("r"))
    assert trace(chained).columns == {"r": "v.page transformed", "s": "v.page transformed"}


def test_a_filter_is_a_dependency_of_the_dataset(visits, trace):
    assert trace(visits.where("seconds > 3").select("id")) == ({"id": "v.id direct"}, {"filter v.seconds"})


def test_a_mark_decides_about_rows_and_is_the_source_of_no_value(visits, trace):
    mark, held = f"{MARK}code", F.col(f"{MARK}code") % 3 == 0
    marked = visits.withColumn(mark, F.length("page") + F.col("seconds"))
    light = marked.select(
        "id", F.when(held, F.col("tags")).alias("tags"), F.when(held, F.upper("page")).alias("p"), mark
    )
    assert trace(light.where(held).drop(mark)) == (
        {"id": "v.id direct", "tags": "v.tags direct", "p": "v.page transformed"},
        {"filter v.page", "filter v.seconds"},
    )


def test_a_mark_of_marks_decides_with_what_they_were_made_of(visits, trace):
    first = visits.withColumn(f"{MARK}long", F.col("seconds") > 3)
    second = first.withColumn(f"{MARK}both", F.col(f"{MARK}long") & (F.col("user_id") > 0))
    assert trace(second.where(f"{MARK}both").select("id")) == (
        {"id": "v.id direct"},
        {"filter v.seconds", "filter v.user_id"},
    )


def test_only_a_mark_is_taken_for_one(visits, trace):
    held = (F.col(f"{MARK}code") == 0) & (F.col("user_id") > 0)
    marked = visits.withColumn(f"{MARK}code", F.col("seconds")).select(
        F.when(held, F.col("page")).alias("page"),
        F.when(F.col("seconds") == 0, F.lit(" THEN ")).otherwise(F.col("id")).alias("told"),
    )
    assert trace(marked).columns == {
        "page": "v.page transformed, v.user_id transformed",
        "told": "v.id transformed, v.seconds transformed",
    }


@pytest.mark.parametrize("how", ["inner", "left", "full"])
def test_join(visits, users, trace, how: str):
    found = trace(visits.join(users, "user_id", how).select("user_id", "page", "name"))
    assert found.columns["name"] == "u.name direct"
    assert found.columns["page"] == "v.page direct"
    both = "u.user_id transformed, v.user_id transformed"
    assert found.columns["user_id"] == (both if how == "full" else "v.user_id direct")
    assert found.dependencies == {"join v.user_id", "join u.user_id"}


@pytest.mark.parametrize("how", ["left_semi", "left_anti"])
def test_join_that_only_decides(visits, users, trace, how: str):
    found = trace(visits.select("user_id").join(users, "user_id", how))
    assert found == ({"user_id": "v.user_id direct"}, {"join v.user_id", "join u.user_id"})


def test_self_join(visits, trace):
    left, right = visits.alias("l"), visits.alias("r")
    joined = left.join(right, F.col("l.user_id") == F.col("r.id"))
    found = trace(joined.select("l.page", F.upper("r.page").alias("other"), F.col("r.seconds")))
    assert found.columns == {"page": "v.page direct", "other": "v.page transformed", "seconds": "v.seconds direct"}
    assert found.dependencies == {"join v.id", "join v.user_id"}


def test_aggregate(visits, trace):
    host = F.split("page", "/")[0].alias("host")
    found = trace(
        visits.groupBy("user_id", host).agg(
            F.sum("seconds").alias("total"),
            (F.max("id") - F.min("seconds")).alias("span"),
            F.count("*").alias("n"),
            F.collect_list(F.struct("page", "id")).alias("pages"),
        )
    )
    assert found.columns == {
        "user_id": "v.user_id direct",
        "host": "v.page transformed",
        "total": "v.seconds aggregated",
        "span": "v.id aggregated, v.seconds aggregated",
        "n": "",
        "pages": "v.id aggregated, v.page aggregated",
    }
    assert found.dependencies == {"group v.user_id", "group v.page"}


def test_aggregate_without_groups_and_having(visits, trace):
    assert trace(visits.agg(F.avg("seconds").alias("mean"))) == ({"mean": "v.seconds aggregated"}, set())
    counted = visits.groupBy("page").agg(F.count("id").alias("n")).where("n > 1").select("page")
    assert trace(counted) == ({"page": "v.page direct"}, {"group v.page", "filter v.id"})


def test_rollup_and_pivot(visits, trace):
    assert trace(visits.rollup("page").agg(F.sum("id").alias("s"))).columns == {
        "page": "v.page direct",
        "s": "v.id aggregated",
    }
    assert trace(visits.groupBy("page").pivot("user_id", [1, 2]).agg(F.sum("id"))).columns == {
        "page": "v.page direct",
        "1": "v.id aggregated, v.user_id aggregated",
        "2": "v.id aggregated, v.user_id aggregated",
    }


def test_window_keys_are_sources(visits, trace):
    latest = Window.partitionBy("user_id").orderBy(F.desc("id"))
    found = trace(
        visits.select(
            "page",
            F.row_number().over(latest).alias("rank"),
            (F.lag("page").over(latest)).alias("before"),
            (F.sum("seconds").over(Window.partitionBy("page")) + F.col("id")).alias("total"),
        )
    )
    assert found.columns == {
        "page": "v.page direct",
        "rank": "v.id aggregated, v.user_id aggregated",
        "before": "v.id aggregated, v.page aggregated, v.user_id aggregated",
        "total": "v.id transformed, v.page aggregated, v.seconds aggregated",
    }


def test_union_by_position_and_by_name(visits, users, trace):
    left = visits.select("user_id", "page")
    assert trace(left.union(users)).columns == {
        "user_id": "u.user_id direct, v.user_id direct",
        "page": "u.name direct, v.page direct",
    }
    right = users.select(F.upper("name").alias("page"), "user_id")
    assert trace(left.unionByName(right)).columns == {
        "user_id": "u.user_id direct, v.user_id direct",
        "page": "u.name transformed, v.page direct",
    }
    assert trace(left.unionByName(users, allowMissingColumns=True)).columns == {
        "user_id": "u.user_id direct, v.user_id direct",
        "page": "v.page direct",
        "name": "u.name direct",
    }
    assert trace(left.union(left)).columns == {"user_id": "v.user_id direct", "page": "v.page direct"}


def test_set_operations_compare_all_columns(visits, users, trace):
    found = trace(visits.select("user_id").exceptAll(users.select("user_id")))
    assert found == ({"user_id": "v.user_id direct"}, {"filter v.user_id", "filter u.user_id"})


def test_explode(visits, trace):
    assert trace(visits.select("id", F.posexplode_outer("tags").alias("place", "tag"))).columns == {
        "id": "v.id direct",
        "place": "v.tags transformed",
        "tag": "v.tags transformed",
    }


def test_unpivot(visits, trace):
    assert trace(visits.unpivot("page", ["id", "user_id"], "name", "value")).columns == {
        "page": "v.page direct",
        "name": "",
        "value": "v.id direct, v.user_id direct",
    }


def test_deduplicate_and_sort(visits, trace):
    found = trace(visits.select("id", "page").dropDuplicates(["page"]).orderBy("id").limit(3).repartition(2, "page"))
    assert found == ({"id": "v.id direct", "page": "v.page direct"}, {"deduplicate v.page", "sort v.id"})


def test_observed_metrics_and_hints_change_nothing(visits, trace):
    observed = visits.select("id").observe("quality", F.count_if(F.col("id") < 0).alias("negative")).hint("broadcast")
    assert trace(observed) == ({"id": "v.id direct"}, set())


def test_pandas_udf_is_opaque_with_its_inputs_only(visits, trace):
    @F.pandas_udf("long")
    def twice(values: pd.Series) -> pd.Series:
        return values * 2

    scored = visits.select((twice(F.col("id") + 1) + F.col("seconds")).alias("score"), "page")
    assert trace(scored).columns == {"score": "v.id opaque, v.seconds transformed", "page": "v.page direct"}
    assert (
        trace(scored.groupBy("page").agg(F.sum("score").alias("s"))).columns["s"] == "v.id opaque, v.seconds aggregated"
    )


def test_python_over_whole_frames_is_opaque(visits, users, trace):
    def same(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        yield from frames

    def first(left: pd.DataFrame, _right: pd.DataFrame) -> pd.DataFrame:
        return left

    pair = visits.select("id", "page")
    assert trace(pair.mapInPandas(same, "a long, b string")).columns == {
        "a": "v.id opaque, v.page opaque",
        "b": "v.id opaque, v.page opaque",
    }
    grouped = trace(pair.groupBy("page").applyInPandas(lambda frame: frame, "id long"))
    assert grouped == ({"id": "v.id opaque, v.page opaque"}, {"group v.page"})
    both = pair.groupBy("id").cogroup(users.groupBy("user_id")).applyInPandas(first, "x long")
    assert trace(both) == (
        {"x": "u.name opaque, u.user_id opaque, v.id opaque, v.page opaque"},
        {"group v.id", "group u.user_id"},
    )


@pytest.fixture
def views(visits: DataFrame, users: DataFrame, spark: SparkSession) -> Iterator[None]:
    visits.createOrReplaceTempView("v")
    users.createOrReplaceTempView("u")
    yield
    spark.catalog.dropTempView("v")
    spark.catalog.dropTempView("u")


@pytest.mark.usefixtures("views")
@pytest.mark.parametrize(
    ("query", "columns", "dependencies"),
    [
        pytest.param(
            "WITH c AS (SELECT id, upper(page) AS p FROM v) SELECT a.id, b.p FROM c a JOIN c b ON a.id = b.id",
            {"id": "v.id direct", "p": "v.page transformed"},
            {"join v.id"},
            id="common table expression, used twice",
        ),
        pytest.param(
            "SELECT id, (SELECT max(name) FROM u WHERE u.user_id = v.user_id) AS n,"
            " (SELECT min(seconds) FROM v) AS s FROM v",
            {"id": "v.id direct", "n": "u.name aggregated, v.user_id transformed", "s": "v.seconds aggregated"},
            {"filter u.user_id"},
            id="scalar subqueries",
        ),
        pytest.param(
            "SELECT id FROM v WHERE user_id IN (SELECT user_id FROM u) AND EXISTS (SELECT 1 FROM u WHERE name = page)",
            {"id": "v.id direct"},
            {"filter v.user_id", "filter u.user_id", "filter v.page", "filter u.name"},
            id="subqueries that decide",
        ),
        pytest.param(
            "SELECT v.id, l.n FROM v, LATERAL (SELECT name AS n FROM u WHERE u.user_id = v.user_id) l",
            {"id": "v.id direct", "n": "u.name direct"},
            {"join v.user_id", "filter u.user_id"},
            id="lateral join",
        ),
        pytest.param(
            "SELECT id, tag FROM v LATERAL VIEW explode(tags) AS tag",
            {"id": "v.id direct", "tag": "v.tags transformed"},
            set(),
            id="lateral view",
        ),
        pytest.param(
            "SELECT r.id, name FROM range(3) r JOIN u ON r.id = user_id",
            {"id": "", "name": "u.name direct"},
            {"join u.user_id"},
            id="range",
        ),
        pytest.param("SELECT * FROM VALUES (1, 'x') AS t(a, b)", {"a": "", "b": ""}, set(), id="values"),
    ],
)
def test_sql(spark: SparkSession, trace: Callable, query: str, columns: dict[str, str], dependencies: set[str]):
    assert trace(spark.sql(query)) == (columns, dependencies)


def test_a_view_that_is_read_as_an_input_has_its_own_columns(spark: SparkSession, trace: Callable, folder: str):
    spark.read.parquet(f"{folder}/users").selectExpr("user_id AS key", "upper(name) AS label").createOrReplaceTempView(
        "w"
    )
    found = trace(spark.table("w").alias("silver.users").select("label"))
    spark.catalog.dropTempView("w")
    assert found == ({"label": "u.label direct"}, set())


def test_a_relation_without_a_known_alias_has_no_source(spark: SparkSession, visits, trace):
    side = spark.createDataFrame([(1, "x")], "id long, side string").alias("elsewhere")
    found = trace(visits.select("id", "page").join(side, "id"))
    assert found == ({"id": "v.id direct", "page": "v.page direct", "side": ""}, {"join v.id"})


def test_a_stream_has_the_lineage_of_a_batch(spark: SparkSession, folder: str, trace):
    stream = spark.readStream.schema("id long, at timestamp").parquet(f"{folder}/visits").alias("bronze.visits")
    found = trace(stream.withWatermark("at", "1 hour").groupBy(F.window("at", "1 minute")).agg(F.max("id").alias("m")))
    assert found.columns == {"window": "v.at transformed", "m": "v.id aggregated"}
