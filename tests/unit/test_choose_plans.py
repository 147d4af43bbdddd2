"""Plans of a fill are interpreted where little is landed, and compiled where more is: by what the engine says of a plan."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from de_assets.filling.plans import FEW_ROWS, choose_plans

pytestmark = pytest.mark.usefixtures("compiled_plans")


def is_compiled(session: SparkSession) -> bool:
    """Spark marks each step of a compiled plan by a star."""
    plan = session.range(9).selectExpr("id + 1 AS next").where("next > 3")
    return "*(1)" in plan._jdf.queryExecution().executedPlan().toString()


def landed(folder: Path, hour: int, size: int) -> None:
    file = folder / "visits" / "date=2024-10-10" / f"hour={hour:02}" / "visits.json"
    file.parent.mkdir(parents=True)
    with file.open("wb") as sparse:
        sparse.truncate(size)


def test_few_rows_are_not_worth_a_compiled_plan(spark: SparkSession, tmp_path: Path) -> None:
    assert is_compiled(spark)
    choose_plans(spark, tmp_path)
    assert not is_compiled(spark), "nothing is landed"
    landed(tmp_path, 0, FEW_ROWS // 2)
    landed(tmp_path, 1, FEW_ROWS // 2)
    choose_plans(spark, tmp_path)
    assert not is_compiled(spark)


def test_many_rows_have_their_plans_compiled_in_this_session_alone(spark: SparkSession, tmp_path: Path) -> None:
    landed(tmp_path, 0, FEW_ROWS // 2)
    landed(tmp_path, 23, FEW_ROWS // 2 + 1)
    other = spark.newSession()
    for session in (spark, other):
        choose_plans(session, tmp_path / "nothing")
    choose_plans(spark, tmp_path)
    assert (is_compiled(spark), is_compiled(other)) == (True, False)
