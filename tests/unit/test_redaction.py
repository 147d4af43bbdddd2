"""Personal values of every type are masked, wherever rows are shown to people."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import pandera.pyspark as pa
import pyspark.sql.types as T
import pytest

from de_resources.contract import REDACTED, Contract
from de_resources.delta.metadata import markdown_table

pytestmark = pytest.mark.pattern("online_observer", "constraints_enforcer")


class Everything(pa.DataFrameModel):
    """One column of each type, all of them personal but the first."""

    shown: T.BinaryType = pa.Field(nullable=True)
    text: T.StringType = pa.Field(nullable=True, metadata={"personal": True})
    payload: T.BinaryType = pa.Field(nullable=True, metadata={"personal": True})
    number: T.LongType = pa.Field(nullable=True, metadata={"personal": True})
    zero: T.IntegerType = pa.Field(nullable=True, metadata={"personal": True})
    share: T.DoubleType = pa.Field(nullable=True, metadata={"personal": True})
    price: T.DecimalType = pa.Field(nullable=True, metadata={"personal": True})
    known: T.BooleanType = pa.Field(nullable=True, metadata={"personal": True})
    born: T.DateType = pa.Field(nullable=True, metadata={"personal": True})
    seen: T.TimestampType = pa.Field(nullable=True, metadata={"personal": True})
    empty: T.StringType = pa.Field(nullable=True, metadata={"personal": True})

    class Config:
        name = "silver.everything"


ROW = {
    "shown": b"canary-0",
    "text": "canary-1",
    "payload": b"canary-2",
    "number": 77123456789,
    "zero": 0,
    "share": 0.77123,
    "price": Decimal("77.12"),
    "known": False,
    "born": date(1977, 12, 3),
    "seen": datetime(1977, 12, 4, tzinfo=UTC),
    "empty": "",
}


def test_values_of_every_type_are_masked_and_nulls_are_not() -> None:
    contract = Contract.of(Everything)
    assert set(ROW) == set(contract.column_names)
    assert contract.redact(ROW) == {name: REDACTED if name != "shown" else value for name, value in ROW.items()}
    nothing = dict.fromkeys(ROW)
    assert contract.redact(nothing) == nothing


def test_a_table_for_people_shows_none_of_them() -> None:
    contract = Contract.of(Everything)
    told = markdown_table(contract.column_names, [ROW], contract)
    assert "canary-0" in told, "what is not personal is shown"
    for value in ("canary-1", "canary-2", "77", "0.7", "False", "1977"):
        assert value not in told
    unmasked = markdown_table(contract.column_names, [ROW], None)
    assert all(value in unmasked for value in ("canary-1", "canary-2", "77123456789", "1977-12-03"))
