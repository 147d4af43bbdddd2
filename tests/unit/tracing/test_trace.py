"""Row lineage over real tables, beside joins in plain Python; and who made a row, through compactions and merges."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from uuid import uuid4

import pandera.pyspark as pa
import pyarrow as arrow
import pyspark.sql.types as T
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import DataFrame, SparkSession
from seeding import named, seed, signed

from de_resources.contract import Contract
from de_resources.delta.log import TableLog
from de_resources.delta.table import CommitInfo, Table
from de_resources.tracing.condition import RowCondition, condition_of
from de_resources.tracing.makers import OUTSIDE, Maker, Makers, runs
from de_resources.tracing.matching import matching
from de_resources.tracing.trace import AT_MOST, Key, NoSuchRow, NotTraceable, Outside, Traced, TracedSource, trace

pytestmark = pytest.mark.pattern("fine_grained_tracker")


class Clicks(pa.DataFrameModel):
    """Clicks."""

    id: T.LongType = pa.Field(nullable=False)
    who: T.StringType = pa.Field(nullable=True, metadata={"personal": True})
    at: T.LongType = pa.Field(nullable=False)

    class Config:
        """The dataset as a whole."""

        name = "silver.clicks"
        metadata = {"owner": "team:web", "key": ["id"]}  # noqa: RUF012


class Visitors(pa.DataFrameModel):
    """Visitors."""

    who: T.StringType = pa.Field(nullable=True, metadata={"personal": True})
    first: T.LongType = pa.Field(nullable=False)
    last: T.LongType = pa.Field(nullable=False)

    class Config:
        """The dataset as a whole."""

        name = "gold.visitors"
        metadata = {"owner": "team:web", "key": ["first"]}  # noqa: RUF012


CLICKS = [(1, "ann", 10), (2, None, 11), (3, "ann", 12), (4, "bob", 13), (5, None, 14), (6, "ann", 99)]
VISITORS = [("ann", 10, 12), (None, 11, 14), ("bob", 13, 13), ("ann", 99, 99)]


def stamp(table: Table, run: str) -> CommitInfo:
    return CommitInfo(table.name, table.name, "all", run, run, uuid4().hex)


def tables_in(lake: Path) -> tuple[Table, Table]:
    clicks = Table("silver.clicks", f"{lake}/silver/clicks", Contract.of(Clicks))
    return clicks, Table("gold.visitors", f"{lake}/gold/visitors", Contract.of(Visitors))


@pytest.fixture
def clicks(lake: Path) -> Table:
    return tables_in(lake)[0]


@pytest.fixture
def visitors(lake: Path) -> Table:
    return tables_in(lake)[1]


def there(table: Table, rows: Sequence[tuple[object, ...]], run: str) -> None:
    """What a run has written, made without the engine."""
    assert table.contract is not None
    columns = table.contract.struct_type()
    seed(table.uri, named(rows, columns), columns, stamp=stamp(table, run))


def finder(*sources: TracedSource) -> Callable[[str], TracedSource]:
    known = {source.name: source for source in sources}
    return lambda name: known.get(name, TracedSource(name))


def copy_of_clicks(written: Mapping[str, TracedSource], to: Table) -> TracedSource:
    """The table of all tests, with its log, to be changed by one of them."""
    source = written["silver/clicks"]
    assert source.table is not None
    shutil.copytree(source.table.uri, to.uri)
    return dataclasses.replace(source, table=to)


WINDOW = {"silver/clicks": "s.who <=> o.who AND s.at BETWEEN o.first AND o.last"}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, TracedSource]:
    """Written once: who traces changes nothing. Two runs of clicks, one of visitors."""
    clicks, visitors = tables_in(tmp_path_factory.mktemp("traced"))
    half = len(CLICKS) // 2
    there(clicks, CLICKS[:half], "run-1")
    there(clicks, CLICKS[half:], "run-2")
    there(visitors, VISITORS, "run-3")
    same = {"id": {"bronze/lines": "id"}, "at": {"bronze/lines": "at"}}
    return {
        "silver/clicks": TracedSource("silver/clicks", clicks, ("bronze/lines",), same),
        "gold/visitors": TracedSource("gold/visitors", visitors, ("silver/clicks",), metadata={"row_lineage": WINDOW}),
    }


@pytest.fixture(scope="module")
def traced(spark: SparkSession, written: Mapping[str, TracedSource]) -> dict[str, Traced]:
    """Every gold row with its way down, by its key."""
    find = finder(*written.values())
    return {str(first): trace(spark, find, "gold/visitors", {"first": str(first)}) for _, first, _ in VISITORS}


def test_each_gold_row_leads_to_its_own_silver_rows_and_their_runs(traced: Mapping[str, Traced]) -> None:
    for who, first, last in VISITORS:
        found = traced[str(first)]
        (gold,), (silver,) = found.rows, found.inputs
        assert runs(gold.makers) == ("run-3",)
        expected = {
            id_: "run-1" if id_ <= 3 else "run-2" for id_, by, at in CLICKS if by == who and first <= at <= last
        }
        assert {row.values["id"]: runs(row.makers)[0] for row in silver.rows} == expected
        assert silver.how == "as the asset declares"
        assert [each.dataset for each in silver.inputs] == ["bronze/lines"]


def test_personal_values_are_masked_where_they_are_shown(traced: Mapping[str, Traced]) -> None:
    found = traced["10"]
    rows = [*found.rows, *found.inputs[0].rows]
    assert {row.values["who"] for row in rows} == {"ann"}
    assert "ann" not in str([row.shown for row in rows])


def test_rows_that_were_compacted_still_name_the_runs_that_wrote_them(
    spark: SparkSession, written: Mapping[str, TracedSource], clicks: Table
) -> None:
    source = copy_of_clicks(written, clicks)
    # By another engine, whose commit has no stamp either, as one by hand has none.
    DeltaTable(clicks.uri).optimize.compact()
    log = clicks.log()
    assert log is not None
    assert log.files().num_rows == 1
    sources = {**written, source.name: source}
    found = trace(spark, finder(*sources.values()), "gold/visitors", {"first": "10"})
    assert {runs(row.makers) for row in found.inputs[0].rows} == {("run-2", "run-1")}, "one of the two"


def test_a_merge_names_the_run_of_the_file_as_it_is_now(
    spark: SparkSession, written: Mapping[str, TracedSource], clicks: Table
) -> None:
    source = copy_of_clicks(written, clicks)
    # By another engine: a merge of either takes the file away and adds one with all of its rows.
    mark = signed(stamp(clicks, "two"))
    changed = arrow.table({"id": [1], "who": ["eve"], "at": [10]})
    merged = DeltaTable(clicks.uri).merge(changed, "s.id = t.id", "s", "t", commit_properties=mark)
    assert merged.when_matched_update_all().execute()["num_target_rows_copied"] == 2
    for id_, run in (("1", "two"), ("4", "run-2")):
        found = trace(spark, finder(source), source.name, {"id": id_})
        assert [runs(row.makers) for row in found.rows] == [(run,)]


def test_what_cannot_be_told_is_said(spark: SparkSession, written: Mapping[str, TracedSource]) -> None:
    clicks = written["silver/clicks"]
    assert clicks.table is not None
    absent = TracedSource("silver/absent", Table("silver.absent", f"{clicks.table.uri}_absent"))
    some = TracedSource("silver/clicks", clicks.table, ("bronze/lines", "silver/absent", "silver/clicks"))
    outside, missing, itself = trace(spark, finder(some, absent), "silver/clicks", {"id": "1"}).inputs
    assert outside.how == "outside of the lake"
    assert missing.how == "it was never written"
    assert "its own earlier state" in itself.how
    undeclared = TracedSource(
        "gold/visitors", written["gold/visitors"].table, ("silver/clicks",), {"who": {"silver/clicks": "who"}}
    )
    (silver,) = trace(spark, finder(clicks, undeclared), "gold/visitors", {"first": "10"}).inputs
    assert (silver.rows, silver.total) == ((), 0)
    assert "do not hold its key (id); declare `row_lineage`" in silver.how


def test_bad_input_is_refused_with_names(spark: SparkSession, written: Mapping[str, TracedSource]) -> None:
    find = finder(*written.values())
    with pytest.raises(NoSuchRow, match="no row with this first"):
        trace(spark, find, "gold/visitors", {"first": "x' OR '1' = '1"})
    with pytest.raises(NotTraceable, match="name first"):
        trace(spark, find, "gold/visitors", {"who": "ann"})
    with pytest.raises(NotTraceable, match="outside of the lake"):
        trace(spark, find, "serving/elsewhere", {"id": "1"})


def test_a_row_outside_of_the_lake_leads_to_rows_inside(
    spark: SparkSession, written: Mapping[str, TracedSource]
) -> None:
    def rows(session: SparkSession, key: Key) -> DataFrame:
        served = session.createDataFrame(
            [("a", "ann", 10, 12), ("b", None, 11, 14)], "name STRING, who STRING, first LONG, last LONG"
        )
        return served.where(served.name == key["name"])

    outside = Outside(("name",), rows, lambda row: {**row, "who": "***"}, lambda _row: (Maker(OUTSIDE, "run-9"),))
    source = TracedSource(
        "serving/visitors", None, ("silver/clicks", "gold/elsewhere"), metadata={"row_lineage": WINDOW}, outside=outside
    )
    find = finder(*written.values(), source)
    found = trace(spark, find, "serving/visitors", {"name": "b"})
    assert ([row.makers for row in found.rows], found.rows[0].shown["who"]) == ([(Maker(OUTSIDE, "run-9"),)], "***")
    silver, elsewhere = found.inputs
    assert {row.values["id"] for row in silver.rows} == {
        id_ for id_, who, at in CLICKS if who is None and 11 <= at <= 14
    }
    assert elsewhere.how == "outside of the lake"
    with pytest.raises(NoSuchRow):
        trace(spark, find, "serving/visitors", {"name": "c"})
    with pytest.raises(NotTraceable, match="name name"):
        trace(spark, find, "serving/visitors", {"who": "ann"})
    reader = TracedSource("gold/reader", written["gold/visitors"].table, ("serving/visitors",))
    (left,) = trace(spark, finder(reader, source), "gold/reader", {"first": "10"}).inputs
    assert left.how == "outside of the lake", "it is traced from there, and not through it"


def test_of_many_rows_some_are_shown_and_all_are_counted(spark: SparkSession, clicks: Table, visitors: Table) -> None:
    many = range(AT_MOST + 20)
    write_deltalake(clicks.uri, arrow.table({"id": many, "who": ["ann"] * len(many), "at": many}))
    write_deltalake(visitors.uri, arrow.table({"who": ["ann"], "first": [0], "last": [1000]}))
    gold = TracedSource("gold/visitors", visitors, ("silver/clicks",), metadata={"row_lineage": WINDOW})
    silver_clicks = TracedSource("silver/clicks", clicks, ("bronze/lines",))
    (silver,) = trace(spark, finder(gold, silver_clicks), "gold/visitors", {"first": "0"}).inputs
    assert (len(silver.rows), silver.total) == (AT_MOST, AT_MOST + 20)
    assert [each.how for each in silver.inputs] == [f"outside of the lake, for {AT_MOST} of these {AT_MOST + 20} rows"]


class TestCondition:
    SAME = {"id": {"a/x": "key"}, "other": {"a/x": "more"}, "elsewhere": {"a/y": "z"}}  # noqa: RUF012

    def test_a_declared_one_wins(self) -> None:
        assert condition_of("a/x", ("key",), {"row_lineage": {"a/x": "TRUE"}}, self.SAME).sql == "TRUE"

    def test_equal_values_decide_where_they_hold_the_key(self) -> None:
        found = condition_of("a/x", ("key",), {}, self.SAME)
        assert found.sql == "s.`key` <=> o.`id` AND s.`more` <=> o.`other`"
        assert found.how == "by equal id, other"

    def test_nothing_in_common_is_no_cross_join(self) -> None:
        assert condition_of("a/z", (), {}, self.SAME).sql is None


def test_a_log_that_was_cleaned_up_says_nothing(written: Mapping[str, TracedSource], clicks: Table) -> None:
    copy_of_clicks(written, clicks)
    log = TableLog.open(clicks.uri)
    assert log is not None
    files = [str(path) for path in log.files().column("path").to_pylist()]
    assert {runs(Makers(log).of(file)) for file in files} == {("run-1",), ("run-2",)}
    for commit in Path(clicks.uri, "_delta_log").glob("*.json"):
        commit.unlink()
    assert [Makers(log).of(file) for file in files] == [(), ()]


class TestMatching:
    """Files that cannot hold a row are not opened: here they are gone."""

    KINDS = "id LONG, day STRING, at LONG, tags ARRAY<STRING>"

    @pytest.fixture(scope="class")
    def days(self, tmp_path_factory: pytest.TempPathFactory) -> str:
        """Days of two files each; of the third both are gone, of the first the second one."""
        uri = tmp_path_factory.mktemp("days")
        for at in (0, 100):
            rows = [{"id": n, "day": day, "at": at + n, "tags": ["x"]} for n in range(3) for day in "abcd"]
            write_deltalake(uri, arrow.Table.from_pylist(rows), partition_by=["day"], mode="append")
        for add in arrow.table(DeltaTable(uri).get_add_actions(flatten=True)).to_pylist():
            if add["partition.day"] == "c" or (add["partition.day"] == "a" and add["min.at"] >= 100):
                (uri / add["path"]).unlink()
        return str(uri)

    def found(self, spark: SparkSession, days: str, condition: RowCondition, *known: tuple[object, ...]) -> object:
        schema = spark.createDataFrame([], self.KINDS).schema
        rows = [dict(zip(schema.names, each, strict=True)) for each in known]
        of = matching(spark, spark.read.format("delta").load(days), condition, rows, schema, ("day",))
        return sorted((row["day"], row["at"]) for row in of.collect())

    def test_of_one_row_the_values_tell_the_files(self, spark: SparkSession, days: str) -> None:
        declared = RowCondition("s.day = o.day AND s.at BETWEEN o.id AND o.at", "")
        assert self.found(spark, days, declared, (1, "a", 2, ["y"])) == [("a", 1), ("a", 2)]

    def test_of_several_rows_the_partitions_are_known(self, spark: SparkSession, days: str) -> None:
        by_equal = condition_of("x", ("id",), {}, {"id": {"x": "id"}, "day": {"x": "day"}, "at": {"x": "at"}})
        known = [(0, "d", 0, ["y"]), (1, "b", 101, ["y"]), (2, "b", 7, ["y"]), (2, None, 2, ["y"])]
        assert self.found(spark, days, by_equal, *known) == [("b", 101), ("d", 0)]

    def test_values_that_are_no_literals_are_joined(self, spark: SparkSession, days: str) -> None:
        same = RowCondition("s.tags <=> o.tags AND s.day = 'b' AND s.id = o.id", "")
        assert self.found(spark, days, same, (1, "a", 7, ["x"])) == [("b", 1), ("b", 101)]
