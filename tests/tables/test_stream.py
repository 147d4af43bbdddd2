"""Draining a stream of files into a table: what is told of it, however many micro-batches it takes; and no way back."""

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from other_reader import rows_of
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StructType
from seeding import seed

from de_resources.contract import Contract
from de_resources.contract.rules import Rule
from de_resources.delta.maintenance.restore import READS_POSITIONS, WouldLoseRecords, restore
from de_resources.delta.table import CommitInfo, Table, Written
from de_resources.delta.write import stream

pytestmark = pytest.mark.pattern("checkpointer")

RULES = (Rule("n_positive", ("n",), "n > 0"),)


class Inbox:
    """A folder of one-line files, of which a micro-batch takes one, and the table that it is drained into."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self.spark, self.folder = spark, root / "inbox"
        self.folder.mkdir(parents=True)
        contract = Contract("bronze.inbox", "", "", (), RULES)
        self.table = Table("bronze.inbox", str(root / "table"), contract)
        seed(self.table.uri, [], StructType().add("n", LongType()))

    def land(self, *numbers: int) -> None:
        for n in numbers:
            (self.folder / f"{uuid4().hex}.json").write_text(f'{{"n": {n}}}\n')

    def drain(self) -> Written:
        run = uuid4().hex
        lines = self.spark.readStream.schema("n long").option("maxFilesPerTrigger", 1).json(str(self.folder))
        return stream.run_available_now(self.spark, self.table, lines, stamp(run))

    def rows(self) -> list[int]:
        return sorted(n for (n,) in rows_of(self.table.uri))


def stamp(run: str) -> CommitInfo:
    return CommitInfo("bronze.inbox", "append", "all", run, run, run)


@pytest.fixture
def inbox(spark: SparkSession, lake: Path) -> Inbox:
    return Inbox(spark, lake)


@pytest.fixture
def short_memory(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An engine that remembers two micro-batches, of which the end may be one, and takes no other word for it."""
    name, kept = stream._PROGRESS_KEPT
    monkeypatch.setattr(stream, "_PROGRESS_KEPT", (name, "2"))
    yield
    spark.conf.set(name, kept)


def test_rows_and_violations_are_of_all_micro_batches(inbox: Inbox) -> None:
    inbox.spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", "1")
    inbox.land(-1, -2)
    written = inbox.drain()
    assert (written.rows, written.violations) == (2, {"n_positive": 2})
    assert written.details["stream/batches"] == 2
    assert inbox.rows() == [-2, -1]
    again = inbox.drain()
    assert (again.rows, again.skipped) == (0, "nothing new at the source")
    inbox.land(1)
    third = inbox.drain()
    assert (third.rows, third.violations, len(inbox.rows())) == (1, {"n_positive": 0}, 3)


@pytest.mark.usefixtures("short_memory")
def test_what_the_engine_forgot_is_unknown_and_not_less(inbox: Inbox) -> None:
    inbox.land(-1, 1, 2)
    written = inbox.drain()
    assert (written.rows, written.violations) == (None, None)
    assert written.details["stream/batches"] == 3
    assert inbox.rows() == [-1, 1, 2]


@pytest.mark.pattern("full_loader")
def test_no_table_goes_back_behind_its_streams_position(inbox: Inbox) -> None:
    inbox.land(1)
    first = inbox.drain().version
    inbox.land(2)
    fed = inbox.drain().version
    with pytest.raises(WouldLoseRecords, match="never come again") as refused:
        restore(inbox.spark, inbox.table, first, stamp("back"))
    assert (refused.value.version, refused.value.fed) == (first, fed)
    assert inbox.rows() == [1, 2]
    inbox.spark.sql(f"DELETE FROM {inbox.table.sql} WHERE n = 1")
    restore(inbox.spark, inbox.table, fed, stamp("undo"))
    assert inbox.rows() == [1, 2]
    inbox.land(3)
    inbox.drain()
    assert inbox.rows() == [1, 2, 3]


@pytest.mark.pattern("full_loader")
def test_nor_behind_positions_that_another_table_keeps(spark: SparkSession, lake: Path) -> None:
    """It is refused before the engine is asked."""
    table = Table("silver.live", str(lake / "live"))
    for run in "ab":
        by = CommitInfo("silver.live", "live", "0:0-1", run, run, run, facts=READS_POSITIONS)
        seed(table.uri, [{"id": 0}, {"id": 1}], StructType().add("id", LongType()), stamp=by)
    with pytest.raises(WouldLoseRecords, match="tables that the same asset writes"):
        restore(spark, table, 0, stamp("back"))
    assert rows_of(table.uri) == [(0,), (0,), (1,), (1,)]
