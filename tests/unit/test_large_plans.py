"""A plan with more on each row than Java compiles as one method: the engine leaves it in pieces, which Java does compile."""

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from de_resources.engine.plans import interpret_plans

pytestmark = [pytest.mark.pattern("dead_letter")]


def steps(session: SparkSession, reasons: int) -> int:
    """By how many steps the engine judges rows by so many reasons; fused, the whole plan is one more than the range."""
    judged = " | ".join(f"IF(length(name) > {i} AND contains(name, 'x{i}'), {i}L, 0L)" for i in range(reasons))
    named = session.range(10).select(F.col("id").cast("string").alias("name"))
    plan = named.select("name", F.expr(judged).alias("reasons"))._jdf.queryExecution()
    return int(plan.toRdd().toDebugString().count("MapPartitionsRDD"))


def test_a_plan_that_java_would_not_compile_is_left_in_pieces(spark: SparkSession) -> None:
    session = spark.newSession()
    interpret_plans(session, interpreted=False)
    few, many = steps(session, 5), steps(session, 200)
    assert many > few
    session.conf.set("spark.sql.codegen.hugeMethodLimit", 65535)
    assert steps(session, 200) == few, "Spark's own limit fuses them, and Java interprets the method for every row"
