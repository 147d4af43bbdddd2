"""Constraints Enforcer: what the store refuses by itself, whoever writes, and how a table comes to its constraints."""

from __future__ import annotations

import os
from collections.abc import Callable, Container
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pandera.pyspark as pa
import pyarrow as arrow
import pyarrow.parquet as parquet
import pyspark.sql.types as T
import pytest
from dagster_delta import WriteMode
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError
from other_reader import rows_of
from pyspark.sql import Column, SparkSession
from seeding import constrain, restored

from de_resources.contract import AmbiguousRule, Contract
from de_resources.delta.maintenance.restore import restore
from de_resources.delta.slices import make_slice
from de_resources.delta.table import CommitInfo, Table
from de_resources.delta.write import frames, overwrite
from de_resources.delta.write.constraints import BLOCKED, present_in
from de_resources.delta.write.modes import write_table
from de_resources.delta.write.refusals import ContractBroken
from de_resources.delta.write.request import WriteRequest
from de_resources.engine.errors import ENGINE_ERRORS

pytestmark = pytest.mark.pattern("constraints_enforcer")

MakeTable = Callable[..., Table]
MakeStamp = Callable[..., CommitInfo]
COUNTERS = frames.counters
CANARY = "canary.person@example.org"


class Orders(pa.DataFrameModel):
    """One row per order."""

    id: T.LongType = pa.Field(nullable=False, description="Identity")
    amount: T.LongType = pa.Field(nullable=True, ge=0, description="Price")
    email: T.StringType = pa.Field(
        nullable=True, str_length={"min_value": 3}, description="Who", metadata={"personal": True}
    )
    paid_at: T.TimestampType = pa.Field(nullable=True, description="When")
    day: T.DateType = pa.Field(nullable=True, description="Day")

    class Config:
        name = "silver.orders"
        metadata = {  # noqa: RUF012
            "key": ["id"],
            "partitioned_by": ["day"],
            "rules": {"paid_has_amount": "paid_at IS NULL OR amount > 0"},
        }


class Later(Orders):
    """The same orders under the next contract: a rule that is new, and one that is gone."""

    email: T.StringType = pa.Field(nullable=True, description="Who", metadata={"personal": True})
    amount: T.LongType = pa.Field(nullable=True, ge=0, le=50, description="Price")

    class Config:
        name = "silver.orders"
        metadata = Orders.Config.metadata


class Cheap(Later):
    """The next contract, in which a rule changed as well."""

    class Config:
        name = "silver.orders"
        metadata = {  # noqa: RUF012
            "key": ["id"],
            "partitioned_by": ["day"],
            "rules": {"paid_has_amount": "paid_at IS NULL OR amount > 1"},
        }


class Known(Orders):
    """The same orders, of which a contract asks but one thing: each constraint that a table gains is a commit."""

    amount: T.LongType = pa.Field(nullable=True, description="Price")
    email: T.StringType = pa.Field(nullable=True, description="Who", metadata={"personal": True})

    class Config:
        name = "silver.orders"
        metadata = {"key": ["id"], "partitioned_by": ["day"]}  # noqa: RUF012


SCHEMA = "id LONG, amount LONG, email STRING, paid_at TIMESTAMP, day DATE"
DAY = date(2024, 1, 2)
PAID = datetime(2024, 1, 2, 12, tzinfo=UTC)
GOOD = (1, 7, CANARY, PAID, DAY)
BAD = {
    "id_present": (None, 7, CANARY, PAID, DAY),
    "amount_greater_than_or_equal_to": (1, -7, CANARY, None, DAY),
    "email_str_length": (1, 7, "x", PAID, DAY),
    # What SQL alone makes of it is NULL, which a CHECK of PostgreSQL and the look at existing rows let pass.
    "paid_has_amount": (1, None, CANARY, PAID, DAY),
}
ARROW = arrow.schema(
    [
        ("id", arrow.int64()),
        ("amount", arrow.int64()),
        ("email", arrow.string()),
        ("paid_at", arrow.timestamp("us", "UTC")),
        ("day", arrow.date32()),
    ]
)


@pytest.fixture
def orders(table: MakeTable) -> Table:
    return table("orders", contract=Contract.of(Orders), partitioned_by=("day",), enforced=True)


@pytest.fixture
def there(orders: Table) -> Table:
    """The same with a row and its constraints, as it is there after a write; made without the engine."""
    _append_by_delta_rs(orders, GOOD)
    constrain(orders.uri, orders.constraints())
    return orders


@pytest.fixture
def write(spark: SparkSession, stamp: MakeStamp) -> Callable[..., Any]:
    """`write(table, rows…)` as the IO manager does it."""

    def write_(table: Table, *rows: tuple[Any, ...], mode: WriteMode = WriteMode.overwrite, **options: Any) -> Any:
        frame = spark.createDataFrame(list(rows), SCHEMA).coalesce(1)
        slice_ = options.pop("slice", make_slice([str(DAY)], None, "day") if mode != WriteMode.append else None)
        return write_table(WriteRequest(spark, frame, table, slice_, stamp(), mode, **options))

    return write_


def assert_enforced(table: Table) -> None:
    """The table has the constraints of its contract, and no others of a contract."""
    spaceless = [{n: sql.replace(" ", "") for n, sql in c.items()} for c in (present_in(table), table.constraints())]
    assert spaceless[0] == spaceless[1]


def test_a_table_has_its_constraints_from_its_first_commit_and_nobody_writes_around_them(
    spark: SparkSession, orders: Table, write: Callable[..., Any]
) -> None:
    """By plain Spark, without an engine, and by the platform."""
    write(orders, GOOD)
    assert set(present_in(orders)) == {f"contract_{rule}" for rule in BAD}
    log = orders.log()
    assert log is not None
    assert [c.operation for c in log.commits(9)] == ["WRITE"], "no commit is spent on them"
    assert log.table.protocol().min_reader_version == 1, "whoever could read the table still can"
    for rule, row in BAD.items():
        bad = spark.createDataFrame([(2, *GOOD[1:]), row], SCHEMA)
        with pytest.raises(ENGINE_ERRORS, match=f"contract_{rule}"):
            bad.write.format("delta").mode("append").save(orders.uri)
        with pytest.raises(DeltaError, match="failed validation check"):
            _append_by_delta_rs(orders, row)
    assert_all_are_told_at_once(orders, write)
    assert len(rows_of(orders.uri)) == 1, "not even the good row of a batch is there"
    _append_by_delta_rs(orders, (2, *GOOD[1:]))
    assert len(rows_of(orders.uri)) == 2, "what keeps the contract is welcome"


def assert_all_are_told_at_once(orders: Table, write: Callable[..., Any]) -> None:
    """All violations of a batch that the platform writes, and no value of them."""
    with pytest.raises(ContractBroken) as refused:
        write(orders, GOOD, *BAD.values(), (2, -1, "y", None, DAY))
    assert refused.value.rows == 6
    # By hand: each bad row breaks its own rule, and the last one two of them.
    assert refused.value.violations == {
        "id_present": 1,
        "amount_greater_than_or_equal_to": 2,
        "email_str_length": 2,
        "paid_has_amount": 1,
    }
    assert CANARY not in str(refused.value)
    assert refused.value.__suppress_context__


def _append_by_delta_rs(table: Table, row: tuple[Any, ...]) -> None:
    write_deltalake(table.uri, _by_arrow(row), mode="append", partition_by=list(table.partitioned_by))


def _restored_by_delta_rs(session: SparkSession, table: Table, version: int, stamp: CommitInfo) -> None:
    restored(session, table, version, stamp)
    assert present_in(table) == {}


def _by_arrow(row: tuple[Any, ...]) -> arrow.Table:
    return arrow.Table.from_pylist([dict(zip(ARROW.names, row, strict=True))], schema=ARROW)


MERGED = {"mode": WriteMode.merge, "metadata": {"merge_keys": ["id"]}}


@pytest.mark.parametrize("options", [{}, {"mode": WriteMode.append}, MERGED], ids=["overwrite", "append", "merge"])
def test_every_mode_writes_and_is_refused(orders: Table, write: Callable[..., Any], options: dict[str, Any]) -> None:
    write(orders, GOOD, **options)
    write(orders, (2, *GOOD[1:]), **options)
    before = rows_of(orders.uri)
    with pytest.raises(ContractBroken) as refused:
        write(orders, (3, *GOOD[1:]), (4, -1, *GOOD[2:]), **options)
    assert refused.value.violations == {"amount_greater_than_or_equal_to": 1, "paid_has_amount": 1}
    assert rows_of(orders.uri) == before


def test_a_stream_is_refused_by_the_name_of_the_rule(
    spark: SparkSession, there: Table, stamp: MakeStamp, tmp_path: Path
) -> None:
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    for place, row in enumerate((GOOD, (None, *GOOD[1:]))):
        parquet.write_table(_by_arrow(row), inbox / f"{place}.parquet")
        os.utime(inbox / f"{place}.parquet", (place, place))
    stream = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(inbox))
    with pytest.raises(ContractBroken) as refused:
        write_table(WriteRequest(spark, stream, there, None, stamp(), WriteMode.append))
    assert refused.value.violations == {"id_present": 1}
    assert CANARY not in str(refused.value)
    assert len(rows_of(there.uri)) == 2, "the micro-batch before it came"


@pytest.mark.parametrize("restored_by", ["delta-rs", "the engine"])
def test_a_table_of_an_earlier_version_gets_them_with_its_next_write_and_keeps_them(
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    orders: Table,
    write: Callable[..., Any],
    stamp: MakeStamp,
    restored_by: str,
) -> None:
    orders = replace(orders, contract=Contract.of(Known))
    _append_by_delta_rs(orders, GOOD)
    assert present_in(orders) == {}
    assert BLOCKED not in write(orders, (2, *GOOD[1:])).details
    assert_enforced(orders)
    assert set(present_in(orders)) == {"contract_id_present"}
    if restored_by == "delta-rs":
        monkeypatch.setattr("de_resources.delta.maintenance.restore._restore", _restored_by_delta_rs)
    # RESTORE alone would bring the table of that version back: without constraints.
    restore(spark, orders, 0, stamp())
    assert [row[0] for row in rows_of(orders.uri)] == [1]
    assert_enforced(orders)


def test_another_contract_migrates_them_and_leaves_those_of_others(
    spark: SparkSession, orders: Table, write: Callable[..., Any]
) -> None:
    write(orders, GOOD)
    spark.sql(f"ALTER TABLE {orders.sql} ADD CONSTRAINT by_hand CHECK (id < 1000)")
    cheap = replace(orders, contract=Contract.of(Cheap))
    write(cheap, GOOD)
    assert_enforced(cheap)
    assert cheap.properties_now()["delta.constraints.by_hand"] == "id < 1000"


def test_rows_in_the_way_are_counted_and_a_run_that_replaces_them_clears_it(
    orders: Table, write: Callable[..., Any]
) -> None:
    other = date(2024, 1, 3)
    dear = [(n, 60 + n, CANARY, None, other) for n in (1, 2, 3)]
    write(replace(orders, enforced=False), *dear, slice=make_slice([str(other)], None, "day"))
    cheap = replace(orders, contract=Contract.of(Cheap))
    told = write(cheap, GOOD).details[BLOCKED]
    assert told == "amount_less_than_or_equal_to: 3 rows"
    assert CANARY not in told
    assert len(present_in(orders)) == len(cheap.constraints()) - 1, "what no row breaks is enforced"
    mended = write(cheap, (1, 5, CANARY, PAID, other), slice=make_slice([str(other)], None, "day"))
    assert BLOCKED not in mended.details
    assert_enforced(cheap)


def test_names_that_differ_in_case_are_one_for_a_store() -> None:
    class Twice(Orders):
        """Two rules that Delta takes for one."""

        class Config:
            name = "silver.twice"
            metadata = {"rules": {"Small": "amount < 9", "small": "amount < 8"}}  # noqa: RUF012

    with pytest.raises(AmbiguousRule, match="small"):
        Contract.of(Twice).constraints()


def test_what_the_store_holds_is_not_counted_a_second_time(
    monkeypatch: pytest.MonkeyPatch, there: Table, write: Callable[..., Any]
) -> None:
    """A write that ended has no row that breaks it; the rule that cannot be a constraint yet is counted as ever."""
    looked: list[set[str]] = []

    def counters(contract: Contract | None, left_out: Container[str] = ()) -> list[Column]:
        found = COUNTERS(contract, left_out)
        looked.append({rule.name for rule in contract.rules if rule.name not in left_out} if contract else set())
        assert len(found) == 1 + len(looked[-1]), "rows, and these rules"
        return found

    monkeypatch.setattr(frames, "counters", counters)
    other = date(2024, 1, 3)
    _append_by_delta_rs(there, (9, 60, CANARY, PAID, other))
    later = replace(there, contract=Contract.of(Later))
    written = write(later, GOOD, (2, 70, CANARY, PAID, DAY))
    assert looked == [{"amount_less_than_or_equal_to"}], "a row of another day breaks it, so that it is no constraint"
    held = BAD.keys() - {"email_str_length"}
    assert written.violations == dict.fromkeys(held, 0) | {"amount_less_than_or_equal_to": 1}
    assert set(present_in(later)) == {f"contract_{rule}" for rule in held}, "the other one is gone"


@pytest.mark.parametrize("mode", [WriteMode.overwrite, WriteMode.append])
def test_of_a_constraint_that_somebody_takes_away_meanwhile_nothing_is_claimed(
    monkeypatch: pytest.MonkeyPatch, there: Table, write: Callable[..., Any], mode: WriteMode
) -> None:
    def drop(moment: str, _: str) -> None:
        if moment == "before_commit":
            DeltaTable(there.uri).alter.drop_constraint("contract_email_str_length")

    monkeypatch.setattr(overwrite, "crash_point", drop)
    written = write(there, GOOD, (2, 7, "x", PAID, DAY), mode=mode)
    assert written.version == 2, "somebody's commit and its own: a write that finds them is one, as ever"
    assert written.rows == 2
    assert written.violations is None, "the row that breaks it is in the table"
