"""A filter's account against a plain count in Python, nulls included, and against tasks that are tried again."""

import json
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime
from itertools import product
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from de_assets.transforms.error_management.filter_interceptor import (
    MOST_CONDITIONS,
    Interception,
    RemovedRows,
    intercept,
    interceptions,
)
from de_resources.engine.exact_histogram import BINS, counts, histogram
from de_resources.lineage import column_lineage

pytestmark = pytest.mark.pattern("filter_interceptor")

CONDITIONS = {"positive": "n > 0", "even": "n % 2 = 0", "named": "name <> 'x'"}
SCHEMA = "at timestamp, n int, name string"
HOURS = [datetime(2026, 1, 1, hour) for hour in (0, 1, 23)]
Rows = list[tuple[datetime, int | None, str | None]]
ROWS: Rows = [
    (hour, n, name)
    for index, hour in enumerate(HOURS)
    for n, name in product([*range(-index, 5), None], ["x", "y", None])
]


def by_hand(rows: Rows) -> Interception:
    """The definition, row by row."""
    first, alone, unknown, kept = Counter[str](), Counter[str](), Counter[str](), 0
    for _, n, name in rows:
        verdicts = {
            "positive": None if n is None else n > 0,
            "even": None if n is None else n % 2 == 0,
            "named": None if name is None else name != "x",
        }
        against = [c for c, holds in verdicts.items() if not holds]
        unknown.update(c for c, holds in verdicts.items() if holds is None)
        first.update(against[:1])
        alone.update(against if len(against) == 1 else [])
        kept += not against
    return Interception(len(rows), kept, {c: RemovedRows(first[c], alone[c], unknown[c]) for c in CONDITIONS})


def told(account: Interception) -> dict[str, Any]:
    return {name: getattr(value, "value", value) for name, value in account.metadata().items()}


def plain(metadata: Any) -> dict[str, Any]:
    return {name: getattr(value, "value", value) for name, value in metadata.items()}


def test_the_account_of_a_frame_is_the_count_by_hand(spark: SparkSession) -> None:
    filtered = intercept(spark.createDataFrame(ROWS, SCHEMA), CONDITIONS)
    kept = filtered.frame.collect()
    assert {key: plain(value) for key, value in filtered.metadata().items()} == {None: told(by_hand(ROWS))}
    assert {(r.n, r["name"]) for r in kept} == {(2, "y"), (4, "y")}


def test_a_window_has_its_own_account(spark: SparkSession) -> None:
    filtered = intercept(spark.createDataFrame(ROWS, SCHEMA).repartition(5), CONDITIONS, window="at")
    filtered.frame.collect()
    expected = {h.replace(tzinfo=UTC): told(by_hand([r for r in ROWS if r[0] == h])) for h in HOURS}
    assert {key: plain(value) for key, value in filtered.metadata().items()} == expected


def test_a_row_is_removed_once_whatever_the_order_and_null_is_neither(spark: SparkSession) -> None:
    for names in (list(CONDITIONS), list(CONDITIONS)[::-1]):
        filtered = intercept(spark.createDataFrame(ROWS, SCHEMA), {name: CONDITIONS[name] for name in names})
        kept = len(filtered.frame.collect())
        account = plain(filtered.metadata()[None])
        removed = account["filter/conditions"]
        assert account["filter/rows_in"] == len(ROWS) == kept + sum(r["first"] for r in removed.values())
        assert account["filter/rows_kept"] == kept
        assert removed["named"]["unknown"] == sum(name is None for _, _, name in ROWS)


def test_nothing_in_nothing_told(spark: SparkSession) -> None:
    filtered = intercept(spark.createDataFrame([], SCHEMA), CONDITIONS, window="at")
    assert filtered.frame.collect() == []
    assert filtered.metadata() == {}


def test_a_window_into_which_nothing_came_has_an_account_of_zeros(spark: SparkSession) -> None:
    quiet = datetime(2024, 10, 10, 23, tzinfo=UTC)
    filtered = intercept(spark.createDataFrame(ROWS, SCHEMA), CONDITIONS, window="at", expected=[quiet])
    filtered.frame.count()
    found = {hour: plain(metadata) for hour, metadata in filtered.metadata().items()}
    by_hour = {hour: told(by_hand([row for row in ROWS if row[0] == hour])) for hour in HOURS}
    assert found == {
        **{hour.replace(tzinfo=UTC): account for hour, account in by_hour.items()},
        quiet: told(by_hand([])),
    }


def test_a_filter_without_conditions_is_refused(spark: SparkSession) -> None:
    with pytest.raises(ValueError, match="at least one"):
        intercept(spark.range(1), {})


def test_the_most_conditions_are_counted_exactly_in_windows_of_our_century_and_more_are_refused(
    spark: SparkSession,
) -> None:
    names = [f"c{n}" for n in range(MOST_CONDITIONS)]
    far = datetime(2099, 12, 31, 23)
    rows = [(far, n, "x") for n in range(MOST_CONDITIONS)]
    filtered = intercept(
        spark.createDataFrame(rows, SCHEMA), {name: f"n <> {n}" for n, name in enumerate(names)}, window="at"
    )
    assert filtered.frame.collect() == []
    ((window, account),) = filtered.metadata().items()
    assert window == far.replace(tzinfo=UTC)
    assert plain(account)["filter/conditions"] == {name: {"first": 1, "alone": 1, "unknown": 0} for name in names}
    with pytest.raises(ValueError, match="at most"):
        intercept(spark.range(1), dict.fromkeys([*names, "one_more"], "id > 0"))


def test_the_kept_rows_have_the_columns_of_the_frame(spark: SparkSession) -> None:
    frame = spark.createDataFrame(ROWS, SCHEMA)
    assert intercept(frame, CONDITIONS).frame.schema == frame.schema


def test_what_is_left_out_of_removed_rows_is_whole_in_the_kept_ones(spark: SparkSession) -> None:
    """Long columns are not carried to where the removed rows end: of all kinds, with odd names and a comment each."""
    told = {"metadata": {"comment": "as declared"}}
    frame = spark.range(20).select(
        "id",
        F.repeat(F.lit("t"), F.col("id").cast("int")).alias("a text.`quoted`", **told),
        F.when(F.col("id") % 3 > 0, F.array("id")).alias("list"),
        F.when(F.col("id") % 3 > 0, F.struct("id", F.lit("s").alias("s"))).alias("record", **told),
        F.when(F.col("id") % 3 > 0, F.create_map(F.lit("k"), "id")).alias("map"),
        F.when(F.col("id") % 3 > 0, F.lit(b"bytes")).alias("bytes"),
    )
    conditions = {"even": "id % 2 = 0", "listed": "list IS NULL OR list[0] <> 4"}
    filtered = intercept(frame, conditions)
    expected = frame.where("id % 2 = 0").where("list IS NULL OR list[0] <> 4")
    assert filtered.frame.schema.jsonValue() == frame.schema.jsonValue()
    assert filtered.frame.orderBy("id").collect() == expected.orderBy("id").collect()


def test_the_lineage_of_kept_rows_is_that_of_a_plain_filter(spark: SparkSession) -> None:
    frame = spark.createDataFrame(ROWS, SCHEMA).alias("bronze.rows")
    plain_filter = frame
    for condition in CONDITIONS.values():
        plain_filter = plain_filter.where(condition)
    found = column_lineage(intercept(frame, CONDITIONS).frame, ["bronze.rows"])
    assert found == column_lineage(plain_filter, ["bronze.rows"])
    assert found.complete
    assert {by.column for by in found.dependencies} == {"n", "name"}


def test_counts_stay_exact_however_many_tasks_there_are_and_too_many_values_are_no_counts(spark: SparkSession) -> None:
    """Fifty tasks bring more bins together than there may be; equal values are merged first."""

    def counted(distinct: int, tasks: int, rows: int) -> Counter[int] | None:
        frame = spark.range(distinct * rows).select((F.col("id") % distinct).alias("v")).repartition(tasks)
        return counts(frame.agg(histogram(F.col("v"))).first()[0])  # type: ignore[index]

    assert counted(BINS - 1, 3, 6) == {value: 6 for value in range(BINS - 1)}
    assert BINS < 90 * 50
    assert counted(90, 50, 100) == {value: 100 for value in range(90)}
    assert counted(BINS + 1, 2, 4) is None
    assert counts(None) == {}


def test_codes_are_read_back() -> None:
    # Window 7; "a" holds and "b" fails (1), both fail (4), "a" is unknown and "b" holds (6).
    found = interceptions([(7 * 9 + 1, 10), (7 * 9 + 4, 3), (7 * 9 + 6, 2), (7 * 9, 5)], ["a", "b"])
    assert found == {7: Interception(20, 5, {"a": RemovedRows(5, 2, 2), "b": RemovedRows(10, 10, 0)})}


_RETRIED = """
import json, sys
from pyspark import TaskContext
from pyspark.sql import SparkSession, functions as F
from de_assets.transforms.error_management.filter_interceptor import intercept

spark = SparkSession.builder.master("local[2,3]").config("spark.ui.enabled", "false").getOrCreate()
spark.sparkContext.setLogLevel("OFF")
tried = spark.sparkContext.accumulator(0)

@F.udf("long")
def fails_at_first(n):
    tried.add(1)
    if n % 1000 == 998 and TaskContext.get().attemptNumber() < 2:
        raise RuntimeError("this attempt is lost")
    return n

filtered = intercept(spark.range(0, 4000, 1, 4), {"even": "id % 2 = 0"})
rows = filtered.frame.select(fails_at_first("id").alias("n")).where("n >= 0")
print(json.dumps({"kept": len(rows.collect()), "tried": tried.value, "rows_in": filtered.metadata()[None]["filter/rows_in"]}))
"""


@pytest.mark.faults
def test_tasks_that_are_tried_again_are_counted_once() -> None:
    """An accumulator in the same job is not: it counts the rows of lost attempts again."""
    done = subprocess.run([sys.executable, "-c", _RETRIED], capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["rows_in"] == 4000
    assert found["kept"] == 2000
    assert found["tried"] > 2000
