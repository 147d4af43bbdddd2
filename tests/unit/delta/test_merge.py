"""Merger: what a batch of changes does to a table, against a dictionary that does the same."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from typing import Any

import dagster as dg
import pandera.pyspark as pa
import pyspark.sql.types as T
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from de_resources.contract import Contract
from de_resources.delta.crash_points import at
from de_resources.delta.merge import MergeRule, UnmergeableRows, merge
from de_resources.delta.slices import make_slice
from de_resources.delta.table import Stamp, Table, Written
from de_resources.errors import PermanentError

pytestmark = pytest.mark.pattern("merger")

MakeTable = Callable[..., Table]
MakeStamp = Callable[..., Stamp]

SCHEMA = "id long, seq long, text string, gone boolean"
RULE = MergeRule(("id",), order="seq", deleted="gone")
Row = tuple[int | None, int | None, str | None, bool | None]


class Merging:
    """One table and the batches that are merged into it."""

    def __init__(self, spark: SparkSession, table: Table, stamp: MakeStamp) -> None:
        self.spark, self.table, self.stamp = spark, table, stamp

    def __call__(self, rows: list[Any], rule: MergeRule = RULE, schema: str = SCHEMA, **options: Any) -> Written:
        frame = self.spark.createDataFrame(rows, schema).coalesce(1)
        return merge(self.spark, self.table, frame, self.stamp(), rule=rule, **({"slice_": None} | options))

    def rows(self) -> list[tuple[Any, ...]]:
        return sorted((tuple(r) for r in self.table.read(self.spark).collect()), key=repr)

    @property
    def version(self) -> int:
        log = self.table.log()
        assert log is not None
        return log.version


@pytest.fixture
def merging(spark: SparkSession, table: MakeTable, stamp: MakeStamp) -> Merging:
    return Merging(spark, table(), stamp)


def test_insert_update_and_soft_delete_are_one_commit_and_a_replay_is_none(merging: Merging) -> None:
    first = merging([(1, 1, "a", False), (2, 1, "b", False), (3, 1, "c", True)])
    assert first.changes == {"insert": 2, "arrived_deleted": 1}
    assert merging.rows() == [(1, 1, "a", False), (2, 1, "b", False)], "what arrives deleted is not inserted"
    before = merging.version
    batch = [(1, 2, "A", False), (2, 2, "b", True), (4, 2, "d", False), (5, 1, "e", None)]
    written = merging(batch)
    assert merging.version == before + 1
    assert written.version == merging.version
    assert written.changes == {"update": 1, "soft_delete": 1, "insert": 2}
    assert written.rows == 4
    assert merging.rows() == [(1, 2, "A", False), (2, 2, "b", True), (4, 2, "d", False), (5, 1, "e", None)]
    replay = merging(batch)
    assert merging.version == before + 1
    assert (replay.skipped, replay.version, replay.commit) == ("nothing changed", before + 1, None)
    assert replay.rows == 4, "rows are counted also where nothing has to change"
    assert merging([]).rows == 0


def test_the_last_of_several_changes_counts_and_an_older_one_never_wins(merging: Merging) -> None:
    merging([(1, 5, "five", False), (1, 7, "seven", False), (1, 6, "six", True), (1, 7, "seven", False)])
    assert merging.rows() == [(1, 7, "seven", False)]
    before = merging.version
    late = merging([(1, 6, "late", True), (2, None, "unordered", False)])
    assert late.changes == {"stale": 1, "insert": 1}
    merging([(1, None, "unordered", False)])
    assert merging.rows() == [(1, 7, "seven", False), (2, None, "unordered", False)]
    assert merging.version == before + 1


@pytest.mark.parametrize(
    ("rows", "rule", "problem", "example"),
    [
        ([(None, 1, "a", False), (1, 1, "b", False)], RULE, r"1 row\(s\) have no id", "id=None"),
        ([(7, 1, "a", False), (7, 1, "b", False)], RULE, "newest `seq`", "id=7"),
        ([(7, None, "a", False), (7, None, "b", False)], RULE, "newest `seq`", "id=7"),
        ([(7, 1, "a", False), (7, 2, "a", False)], MergeRule(("id",)), "declare an ordering column", "id=7"),
    ],
    ids=["null key", "tie", "tie of nulls", "no order"],
)
def test_rows_that_cannot_be_merged_show_their_keys(
    merging: Merging, rows: list[Row], rule: MergeRule, problem: str, example: str
) -> None:
    merging([(9, 1, "kept", False)])
    before = merging.version
    with pytest.raises(UnmergeableRows, match=problem) as caught:
        merging(rows, rule)
    assert caught.value.examples == [example]
    assert "`silver.rows`" in str(caught.value)
    assert merging.version == before


def test_personal_keys_are_not_shown(spark: SparkSession, table: MakeTable, stamp: MakeStamp) -> None:
    class People(pa.DataFrameModel):
        email: T.StringType = pa.Field(nullable=False, metadata={"personal": True})
        age: T.IntegerType = pa.Field(nullable=True)

        class Config:
            name = "silver.people"

    merging = Merging(spark, table(contract=Contract.of(People)), stamp)
    with pytest.raises(UnmergeableRows) as caught:
        merging([("canary@example.org", 1), ("canary@example.org", 2)], MergeRule(("email",)), "email string, age int")
    assert "canary" not in str(caught.value)
    assert caught.value.examples == ["email=•••"]


def test_keys_of_several_columns_and_null_values_compare_safely(merging: Merging) -> None:
    rule, schema = MergeRule(("a", "b")), "a int, b string, v int"
    merging([(1, "x", None), (1, "y", 2)], rule, schema)
    written = merging([(1, "x", 1), (1, "y", None)], rule, schema)
    assert written.changes == {"update": 2}
    assert merging.rows() == [(1, "x", 1), (1, "y", None)]
    assert merging([(1, "x", 1), (1, "y", None)], rule, schema).skipped


def test_halves_of_the_upsert(merging: Merging) -> None:
    merging([(1, 1, "a", False)])
    assert merging([(1, 2, "A", False), (2, 2, "B", False)], MergeRule(("id",), insert=False)).changes == {
        "update": 1,
        "ignored": 1,
    }
    assert merging([(1, 3, "Z", False), (3, 3, "C", False)], MergeRule(("id",), update=False)).changes == {
        "ignored": 1,
        "insert": 1,
    }
    assert merging.rows() == [(1, 2, "A", False), (3, 3, "C", False)]


def test_a_table_of_keys_only(merging: Merging) -> None:
    rule = MergeRule(("id",), vanished="delete")
    merging([(1,), (2,)], rule, "id long")
    assert merging([(2,), (3,)], rule, "id long").changes == {"insert": 1, "delete": 1}
    assert merging.rows() == [(2,), (3,)]


class TestVanished:
    DAYS = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-01-10")

    @pytest.mark.parametrize("layout", [("day",), ()], ids=["partitioned", "flat"])
    def test_only_rows_of_the_slice_can_vanish(
        self, spark: SparkSession, table: MakeTable, stamp: MakeStamp, layout: tuple[str, ...]
    ) -> None:
        merging = Merging(spark, table(partitioned_by=layout), stamp)
        rule, schema = MergeRule(("id",), vanished="delete"), "id long, day date, text string"
        for number in (1, 2):
            slice_ = make_slice([f"2024-01-0{number}"], self.DAYS, "day")
            day = date(2024, 1, number)
            written = merging([(10 * number, day, "a"), (10 * number + 1, day, "b")], rule, schema, slice_=slice_)
            assert written.rows == 2
        written = merging([(20, date(2024, 1, 2), "A")], rule, schema, slice_=slice_)
        assert written.changes == {"update": 1, "delete": 1}
        assert written.rows == 1
        kept = [(10, date(2024, 1, 1), "a"), (11, date(2024, 1, 1), "b")]
        assert merging.rows() == [*kept, (20, date(2024, 1, 2), "A")]
        written = merging([], rule, schema, slice_=slice_)
        assert (written.changes, written.rows, written.violations) == ({"delete": 1}, 0, {})
        assert merging.rows() == kept

    def test_a_soft_delete_marks_them_once(self, merging: Merging) -> None:
        rule = MergeRule(("id",), deleted="gone", vanished="delete")
        merging([(1, 1, "a", False), (2, 1, "b", False)], rule)
        assert merging([(1, 1, "a", False)], rule).changes == {"vanished": 1}
        assert merging.rows() == [(1, 1, "a", False), (2, 1, "b", True)]
        assert merging([(1, 1, "a", False)], rule).skipped


def test_a_merge_touches_only_files_that_can_match(spark: SparkSession, table: MakeTable, stamp: MakeStamp) -> None:
    days = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-01-10")
    merging = Merging(spark, table(partitioned_by=("day",)), stamp)
    rule, schema = MergeRule(("id",)), "id long, day date, text string"
    merging([(n, date(2024, 1, n), "a") for n in range(1, 6)], rule, schema)
    log = merging.table.log()
    assert log is not None
    before = set(log.files().column("path").to_pylist())
    merging([(2, date(2024, 1, 2), "b")], rule, schema, slice_=make_slice(["2024-01-02"], days, "day"))
    log = merging.table.log()
    assert log is not None
    replaced = before - set(log.files().column("path").to_pylist())
    assert [p.split("/")[0] for p in replaced] == ["day=2024-01-02"]


def test_a_row_inserted_by_somebody_else_in_between_is_not_duplicated_and_a_newer_one_stays(
    merging: Merging,
) -> None:
    """Another engine may commit between the comparison and the MERGE where no lock is possible (object stores)."""
    merging([(1, 1, "a", False)])
    target = merging.table.sql

    def interfere(_: str) -> None:
        merging.spark.sql(f"INSERT INTO {target} VALUES (2, 9, 'newer', FALSE), (3, 1, 'older', FALSE)")

    with at("before_commit", interfere):
        merging([(2, 5, "ours", False), (3, 5, "ours", False)])
    assert merging.rows() == [(1, 1, "a", False), (2, 9, "newer", False), (3, 5, "ours", False)]


def test_the_stamp_does_not_stay_in_the_session(merging: Merging) -> None:
    merging([(1, 1, "a", False)])
    assert merging.spark.conf.get("spark.databricks.delta.commitInfo.userMetadata", None) is None
    log = merging.table.log()
    assert log is not None
    assert log.commits(1)[0].stamp["writer"] == "silver/rows"


def test_a_location_with_braces(spark: SparkSession, table: MakeTable, stamp: MakeStamp) -> None:
    merging = Merging(spark, table("odd {x} `name`"), stamp)
    merging([(1, 1, "a", False)])
    assert merging.rows() == [(1, 1, "a", False)]


@pytest.mark.parametrize(
    ("rule", "missing"),
    [(MergeRule(("nope",)), "nope"), (MergeRule(("id",), "later", "dead"), "later, dead"), (MergeRule(()), "no key")],
)
def test_a_rule_about_other_columns_is_refused(merging: Merging, rule: MergeRule, missing: str) -> None:
    with pytest.raises(PermanentError, match=missing):
        merging([(1, 1, "a", False)], rule)


@st.composite
def batches(draw: st.DrawFn) -> list[list[tuple[int, int, str, bool]]]:
    """Batches without ties: the text follows from key and order."""
    change = st.tuples(st.integers(1, 5), st.integers(1, 12), st.booleans())
    found: Any = draw(st.lists(st.lists(change, max_size=8), min_size=2, max_size=3))
    return [[(key, seq, f"{key}@{seq}", (key * seq) % 3 == 0) for key, seq, _ in batch] for batch in found]


@settings(
    max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(found=batches(), number=st.uuids())
def test_batches_do_what_they_do_to_a_dictionary(
    spark: SparkSession,
    table: MakeTable,
    stamp: MakeStamp,
    found: list[list[tuple[int, int, str, bool]]],
    number: object,
) -> None:
    merging = Merging(spark, table(f"t{number}"), stamp)
    model: dict[int, tuple[int, int, str, bool]] = {}
    for batch in found:
        written = merging(batch)
        counts = dict.fromkeys(("insert", "update", "soft_delete", "arrived_deleted", "stale"), 0)
        last = {key: row for row in sorted(batch, key=lambda r: r[1]) for key in [row[0]]}
        for key, row in last.items():
            old = model.get(key)
            if old is None:
                counts["arrived_deleted" if row[3] else "insert"] += 1
            elif row[1] < old[1]:
                counts["stale"] += 1
            elif row != old:
                counts["soft_delete" if row[3] and not old[3] else "update"] += 1
            if (old is None and not row[3]) or (old is not None and row[1] >= old[1]):
                model[key] = row
        assert written.changes == {k: n for k, n in counts.items() if n}
        assert written.rows == len(batch)
        assert merging.rows() == sorted(model.values(), key=repr)


def test_the_cached_comparison_is_given_back(merging: Merging) -> None:
    merging([(1, 1, "a", False)])
    assert merging.spark._jsparkSession.sharedState().cacheManager().isEmpty()
