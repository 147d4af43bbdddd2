"""A table comes into being once, with its first rows, whoever else creates it and wherever a creator died."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pandera.pyspark as pa
import pyarrow as arrow
import pyspark.sql.types as T
import pytest
from deltalake import DeltaTable, write_deltalake
from other_reader import rows_of
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import LongType, StringType, StructField, StructType

from de_resources.contract import Contract
from de_resources.delta.slices import Members, Slice
from de_resources.delta.table import CommitInfo, LocationTaken, Table, Written
from de_resources.delta.write.crash_points import at
from de_resources.delta.write.frames import RowsOutsideSlice
from de_resources.delta.write.lock import creation_lock
from de_resources.delta.write.merge import MergeRule, UnmergeableRows, merge
from de_resources.delta.write.overwrite import replace
from de_resources.delta.write.refusals import ConcurrentWrite

pytestmark = [pytest.mark.pattern("data_overwrite", "merger"), pytest.mark.faults]

MakeStamp = Callable[..., CommitInfo]
SCHEMA = StructType().add("hour", StringType()).add("id", LongType())


class Visits(pa.DataFrameModel):
    """A visit per row."""

    hour: T.StringType = pa.Field(nullable=True, description="Hour of the visit")
    id: T.LongType = pa.Field(nullable=True, ge=1, description="Identity of the visit")

    class Config:
        name = "bronze.visits"
        metadata = {"key": ["id"], "partitioned_by": ["hour"]}  # noqa: RUF012


def table_at(path: Path, **options: Any) -> Table:
    return Table("bronze.visits", str(path), partitioned_by=("hour",), **options)


def hours(*keys: str) -> Slice:
    return Slice(boxes=((Members("hour", keys),),), by_key={key: (Members("hour", (key,)),) for key in keys})


def visits(spark: SparkSession, *rows: tuple[str, int]) -> DataFrame:
    return spark.createDataFrame(list(rows), SCHEMA).coalesce(1)


def overwritten(spark: SparkSession, table: Table, frame: DataFrame, stamp: CommitInfo, *keys: str) -> Written:
    return replace(spark, table, frame, stamp, slice_=hours(*keys))


def merged(spark: SparkSession, table: Table, frame: DataFrame, stamp: CommitInfo, *keys: str) -> Written:
    return merge(spark, table, frame, stamp, rule=MergeRule(("hour", "id"), vanished="delete"), slice_=hours(*keys))


BY_EACH = pytest.mark.parametrize("write", [overwritten, merged])
Write = Callable[..., Written]


def about(uri: str) -> dict[str, Any]:
    """What the table's first commits say of it, but who made it and when."""
    commits = sorted((Path(uri) / "_delta_log").glob("*.json"))
    told = [json.loads(line) for commit in commits for line in commit.read_text().splitlines()]
    newest = [action["metaData"] for action in told if "metaData" in action][-1]
    return {**{k: v for k, v in newest.items() if k not in ("id", "createdTime")}, **protocol_of(told)}


def protocol_of(told: list[dict[str, Any]]) -> dict[str, Any]:
    return [action["protocol"] for action in told if "protocol" in action][-1]


def test_first_writers_at_once_all_find_the_one_table(spark: SparkSession, tmp_path: Path) -> None:
    for attempt in range(3):
        target = table_at(tmp_path / f"visits{attempt}")
        with ThreadPoolExecutor(8) as writers:
            list(writers.map(lambda _, t=target: t.create_if_missing(spark, SCHEMA), range(8)))  # type: ignore[misc]
        log = target.log()
        assert log is not None
        assert log.version == 0


def test_a_crafted_field_name_adds_no_column(spark: SparkSession, tmp_path: Path) -> None:
    payload = StructType().add("x:STRING>", LongType()).add("user-agent", StringType())
    schema = StructType([*SCHEMA.fields, StructField("payload", payload)])
    target = table_at(tmp_path / "visits")
    target.create_if_missing(spark, schema)
    found = {field.name: field.dataType for field in target.read(spark).schema.fields}
    assert found == {field.name: field.dataType for field in schema.fields}


def test_what_a_dead_creator_left_is_no_obstacle(spark: SparkSession, tmp_path: Path) -> None:
    target = table_at(tmp_path / "visits")
    left = tmp_path / "visits" / "_delta_log"
    left.mkdir(parents=True)
    (left / ".00000000000000000000.json.8d1f.tmp").write_text('{"commitInfo":')
    target.create_if_missing(spark, SCHEMA)
    log = target.log()
    assert log is not None
    assert log.version == 0
    assert not list(left.glob(".*.tmp")), "the half-written commit is gone"


def test_a_folder_with_other_files_is_refused_and_left_alone(spark: SparkSession, tmp_path: Path) -> None:
    target = table_at(tmp_path / "visits")
    (tmp_path / "visits" / "_delta_log").mkdir(parents=True)
    other = tmp_path / "visits" / "report.parquet"
    other.write_bytes(b"somebody's")
    with pytest.raises(LocationTaken, match=r"report\.parquet"):
        target.create_if_missing(spark, SCHEMA)
    assert other.read_bytes() == b"somebody's"


@BY_EACH
@pytest.mark.parametrize("enforced", [False, True], ids=["checked", "enforced"])
def test_a_first_write_creates_its_table_in_the_same_commit(
    spark: SparkSession, tmp_path: Path, stamp: MakeStamp, enforced: bool, write: Write
) -> None:
    """The table says of itself what an empty one says that is created first, but for its description."""
    contract = Contract.of(Visits)
    made, empty = (table_at(tmp_path / name, contract=contract, enforced=enforced) for name in ("made", "empty"))
    empty.create_if_missing(spark, SCHEMA)
    elsewhere = visits(spark, ("10", 1), ("11", 2)).withMetadata("id", {"comment": "what another table says of it"})
    written = write(spark, made, elsewhere, stamp("mine"), "10", "11")
    assert (written.version, written.rows, written.commit and written.commit.stamp["run"]) == (0, 2, "mine")
    assert written.violations == {rule.name: 0 for rule in contract.rules}
    assert written.changes == ({"insert": 2} if write is merged else {})
    assert rows_of(made.uri) == [("10", 1), ("11", 2)]
    assert about(made.uri) == {key: value for key, value in about(empty.uri).items() if key != "description"}
    assert about(empty.uri)["description"] == contract.description != ""
    again = write(spark, made, elsewhere, stamp("mine"), "10", "11")
    assert (again.version, again.repeated) == (0, write is overwritten), "a retry finds what it has committed"
    assert again.skipped, "and a merge that nothing is left to do"


def test_a_first_merge_leaves_a_file_of_each_partition_and_out_what_it_refuses(
    spark: SparkSession, tmp_path: Path, stamp: MakeStamp
) -> None:
    target = table_at(tmp_path / "visits")
    twice = visits(spark, ("10", 1), ("10", 1), ("11", 2), ("11", 3)).repartition(2, "id")
    assert merged(spark, target, twice, stamp(), "10", "11").changes == {"insert": 3}
    assert rows_of(target.uri) == [("10", 1), ("11", 2), ("11", 3)]
    assert len(DeltaTable(target.uri).file_uris()) == 2
    unfit = table_at(tmp_path / "unfit")
    with pytest.raises(UnmergeableRows):
        merged(spark, unfit, visits(spark, ("10", 1)).selectExpr("hour", "nullif(id, 1) AS id"), stamp(), "10")
    with pytest.raises(RowsOutsideSlice):
        merged(spark, unfit, visits(spark, ("10", 1), ("11", 1)), stamp(), "10")
    assert unfit.log() is None


def test_a_frame_without_rows_creates_the_table_and_was_a_write(
    spark: SparkSession, tmp_path: Path, stamp: MakeStamp
) -> None:
    target, blank = table_at(tmp_path / "visits"), table_at(tmp_path / "blank")
    assert overwritten(spark, target, visits(spark).limit(0), stamp(), "10").rows == 0
    # A merge finds nothing to do, and nobody can tell from the table that it was one.
    nothing = merged(spark, blank, visits(spark).limit(0), stamp(), "10")
    assert (nothing.version, nothing.rows, nothing.skipped) == (0, 0, "nothing changed")
    assert [log and (log.version, log.is_blank) for log in (target.log(), blank.log())] == [(0, False), (0, True)]


@pytest.mark.parametrize("properties", [{}, {"shop.owner": "orders"}], ids=["Delta's own", "another property"])
def test_a_first_write_that_fails_leaves_no_table_with_rows_and_is_no_obstacle(
    spark: SparkSession, tmp_path: Path, stamp: MakeStamp, properties: dict[str, str]
) -> None:
    target = table_at(tmp_path / "visits", properties=properties)
    many = visits(spark, *(("10", n) for n in range(9)), ("12", 9)).repartition(2)
    with pytest.raises(RowsOutsideSlice):
        overwritten(spark, target, many, stamp(), "10")
    log = target.log()
    assert log is None if not properties else log is not None and log.is_blank
    overwritten(spark, target, visits(spark, ("10", 1)), stamp(), "10")
    assert rows_of(target.uri) == [("10", 1)]
    assert target.properties_now().items() >= properties.items()


def test_an_empty_table_is_created_beside_what_a_dead_first_write_left(spark: SparkSession, tmp_path: Path) -> None:
    """By a stream, say, to which the asset was changed. It says of itself what it would without these files."""
    contract, properties = Contract.of(Visits), {"shop.owner": "orders"}
    target, plain = (table_at(tmp_path / n, contract=contract, properties=properties) for n in ("visits", "plain"))
    left = tmp_path / "visits" / "hour=10" / f"part-00000-{'0' * 8}-0000-4000-8000-{'0' * 12}.c000.snappy.parquet"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"half of a file")
    with pytest.raises(LocationTaken, match="hour=10"):
        target.create_if_missing(spark, SCHEMA)
    with creation_lock(target.uri, table=target.name) as unfinished:
        unfinished.note()
    for table in (target, plain):
        table.create_if_missing(spark, SCHEMA)
    assert about(target.uri) == about(plain.uri)
    assert left.exists(), "an engine whose client died may still name it"
    assert rows_of(target.uri) == []
    with creation_lock(target.uri, table=target.name) as unfinished:
        assert not unfinished.is_noted, "from here on such files are somebody else's"


def test_somebodys_files_are_in_the_way_also_where_a_first_write_died(
    spark: SparkSession, tmp_path: Path, stamp: MakeStamp
) -> None:
    target = table_at(tmp_path / "visits")
    with creation_lock(target.uri, table=target.name) as unfinished:
        unfinished.note()
    other = tmp_path / "visits" / "hour=10" / "report.parquet"
    other.parent.mkdir(parents=True)
    other.write_bytes(b"somebody's")
    with pytest.raises(LocationTaken, match="hour=10"):
        overwritten(spark, target, visits(spark, ("10", 1)), stamp(), "10")
    assert other.read_bytes() == b"somebody's"


@BY_EACH
def test_first_writes_at_once_all_land(spark: SparkSession, tmp_path: Path, stamp: MakeStamp, write: Write) -> None:
    target, keys = table_at(tmp_path / "visits"), ["10", "11", "12", "13"]

    def written(key: str) -> int:
        return write(spark, target, visits(spark, (key, int(key))), stamp(slice_=key), key).version

    with ThreadPoolExecutor(4) as writers:
        assert sorted(writers.map(written, keys)) == [0, 1, 2, 3]
    assert rows_of(target.uri) == [(key, int(key)) for key in keys]


@BY_EACH
def test_a_table_that_somebody_else_creates_meanwhile_is_not_replaced(
    spark: SparkSession, tmp_path: Path, stamp: MakeStamp, write: Write
) -> None:
    """Who takes no lock: the first write is refused, in a way that is tried again."""
    target = table_at(tmp_path / "visits")
    theirs = arrow.table({"hour": ["11"], "id": [7]})
    with (
        at("before_commit", lambda _: write_deltalake(target.uri, theirs, partition_by=["hour"])),
        pytest.raises(ConcurrentWrite),
    ):
        write(spark, target, visits(spark, ("10", 1)), stamp(), "10")
    assert rows_of(target.uri) == [("11", 7)]
    write(spark, target, visits(spark, ("10", 1)), stamp(), "10")
    assert rows_of(target.uri) == [("10", 1), ("11", 7)]
    assert DeltaTable(target.uri).version() == 1
