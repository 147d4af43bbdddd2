"""What the suite does to its engines leaves the rows as they are."""

from datetime import date, timedelta
from decimal import Decimal

from pyspark.sql import Row, SparkSession

ROWS = [
    Row(
        n=n,
        text=f"größe {n}",
        blob=bytes([n]),
        amount=Decimal(n) / 4,
        day=date(1, 1, 1) + timedelta(days=n),
        many=[n],
    )
    for n in range(9)
]


def test_rows_of_a_list_reach_the_engine_without_python_workers(spark: SparkSession) -> None:
    frame = spark.createDataFrame(ROWS)
    assert "PythonRDD[" not in frame._jdf.rdd().toDebugString()
    assert sorted(frame.collect()) == ROWS


def test_what_is_computed_in_python_still_is(spark: SparkSession) -> None:
    numbers = spark.sparkContext.parallelize(range(9)).map(lambda n: (n, n * n))
    assert dict(map(tuple, spark.createDataFrame(numbers, "n long, square long").collect())) == {
        n: n * n for n in range(9)
    }
