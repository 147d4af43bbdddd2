"""Deleted rows are kept as long as it was said, and then forgotten; within that time no order of batches matters."""

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

import pandera.pyspark as pa
import pyspark.sql.types as T
import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from seeding import named, seed

from de_resources.delta.maintenance.tombstones import CannotForget, Forgetting, forget
from de_resources.delta.table import CommitInfo, Table
from de_resources.delta.write.merge import MergeRule, merge

pytestmark = pytest.mark.pattern("merger")

START = datetime(2024, 1, 1, tzinfo=UTC)
DAYS = 2
HOUR = timedelta(hours=1)
RULE = MergeRule(key=("id",), order="at", deleted="gone")
METADATA: dict[str, Any] = {"merge_order": "at", "merge_deleted": "gone", "merge_deleted_days": DAYS}
FORGETTING = Forgetting("gone", "at", timedelta(days=DAYS))
Change = tuple[int, datetime, bool]


class Accounts:
    """A table of changes, merged and tidied at given times."""

    def __init__(self, spark: SparkSession, table: Table, stamp: Callable[..., CommitInfo]) -> None:
        self.spark, self.table, self.stamp = spark, table, stamp

    def merge(self, changes: list[Change]) -> None:
        frame = self.spark.createDataFrame(changes, "id int, at timestamp, gone boolean")
        merge(self.spark, self.table, frame, self.stamp(), rule=RULE, slice_=None)

    def seed(self, *changes: Change) -> None:
        """Rows as merges leave them, written without the engine."""
        columns = T.StructType.fromDDL("id int, at timestamp, gone boolean")
        seed(self.table.uri, named(changes, columns), columns)

    def forget(self, now: datetime) -> int:
        return forget(self.spark, self.table, FORGETTING, self.stamp(), now=now)

    def rows(self) -> list[tuple[int, datetime, bool]]:
        found = DeltaTable(self.table.uri).to_pyarrow_table().to_pylist()
        return sorted((row["id"], row["at"], row["gone"]) for row in found)


@pytest.fixture
def accounts(spark: SparkSession, table: Callable[..., Table], stamp: Callable[..., CommitInfo]) -> Accounts:
    return Accounts(spark, table("accounts"), stamp)


def test_what_was_deleted_long_enough_ago_goes_and_nothing_else(accounts: Accounts) -> None:
    accounts.seed((1, START, True), (2, START + HOUR, True), (3, START, False))
    now = START + timedelta(days=DAYS) + HOUR
    assert accounts.forget(now) == 1
    assert [row[0] for row in accounts.rows()] == [2, 3]
    log = accounts.table.log()
    assert log is not None
    assert accounts.forget(now) == 0
    again = accounts.table.log()
    assert again is not None
    assert again.version == log.version, "nothing to forget is nothing to commit"


@settings(max_examples=4)
@given(st.integers(0, 10_000))
def test_batches_that_come_within_the_time_give_the_same_table_in_any_order(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, stamp: Callable[..., CommitInfo], drawn: int
) -> None:
    """Each change comes up to two days after it happened; deleted rows are forgotten after every batch."""
    chance = random.Random(drawn)  # noqa: S311
    moments = chance.sample(range(96), 12)
    changes = [(chance.randrange(3), START + hour * HOUR, chance.random() < 0.5) for hour in moments]
    arrivals = sorted((at + timedelta(days=DAYS) * chance.random(), (id_, at, gone)) for id_, at, gone in changes)
    accounts = Accounts(spark, Table("silver.accounts", str(tmp_path_factory.mktemp("lake") / "t")), stamp)
    for some in (arrivals[:4], arrivals[4:8], arrivals[8:]):
        accounts.merge([change for _, change in some])
        accounts.forget(some[0][0])
    end = max(at for _, at, _ in changes) + timedelta(days=DAYS)
    accounts.forget(end)
    last = {id_: (id_, at, gone) for id_, at, gone in sorted(changes, key=lambda change: change[1])}
    horizon = end - timedelta(days=DAYS)
    assert accounts.rows() == sorted(row for row in last.values() if not (row[2] and row[1] < horizon))


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"merge_order": None}, "needs `merge_deleted` and `merge_order`"),
        ({"merge_deleted": None}, "needs `merge_deleted` and `merge_order`"),
        ({"stateful": True}, "build on each other"),
        ({"merge_deleted_days": -1}, "no number of days"),
        ({"merge_deleted_days": True}, "no number of days"),
    ],
)
def test_what_cannot_be_forgotten_is_said(wrong: dict[str, Any], why: str) -> None:
    with pytest.raises(CannotForget, match=why):
        Forgetting.of("silver.accounts", METADATA | wrong)


class Kept(pa.DataFrameModel):
    """Accounts whose contract says how long a deleted one is kept."""

    id: T.IntegerType = pa.Field(nullable=False, description="Account")

    class Config:
        name = "silver.accounts"
        metadata: ClassVar[dict[str, Any]] = {"owner": "team:a", "key": ["id"], "deleted_days": DAYS}


MERGED = {"merge_order": "at", "merge_deleted": "gone", "contract": f"{__name__}:Kept"}


def test_the_contract_says_how_long_and_its_asset_need_not() -> None:
    assert Forgetting.of("silver.accounts", MERGED) == FORGETTING
    assert Forgetting.of("silver.accounts", MERGED | {"merge_deleted_days": DAYS}) == FORGETTING


def test_two_numbers_of_days_are_one_too_many() -> None:
    with pytest.raises(CannotForget, match="its contract says 2 days, and its asset 3"):
        Forgetting.of("silver.accounts", MERGED | {"merge_deleted_days": 3})


def test_an_order_that_is_no_time_is_said(accounts: Accounts) -> None:
    accounts.seed((1, START, True))
    with pytest.raises(CannotForget, match="its order is int, which is no time"):
        forget(accounts.spark, accounts.table, Forgetting("gone", "id", timedelta()), accounts.stamp(), now=START)


def test_who_says_nothing_keeps_them_for_good() -> None:
    assert Forgetting.of("silver.accounts", {"merge_order": "at", "merge_deleted": "gone"}) is None
    assert Forgetting.of("silver.accounts", METADATA) == FORGETTING
