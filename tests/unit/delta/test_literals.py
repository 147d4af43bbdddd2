"""Typed values and names as SQL text: whatever comes in stays a value."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from de_resources.sql.literals import Scalar, literal

NASTY = [
    "",
    "plain",
    "'; DROP TABLE x; --",
    '" OR ""="',
    "\\",
    "\\'",
    "\\u0041",
    "a\nb\r\tc",
    "\0",
    "%2e%2e/",
    "${env:HOME} {x} ?:p",
    "\u2028\u202e\ufeff\ufffe",
    "ключ 鍵 😀 e\u0301",
    "/* */ -- `",
    "x" * 300,
]


@given(st.text())
def test_no_text_ends_its_literal(text: str) -> None:
    rendered = literal(text)
    assert rendered[0] == rendered[-1] == "'"
    assert not set(rendered[1:-1]) & set("'\";`${}\n\r\0")
    assert rendered.isascii()


def test_texts_round_trip_through_the_engine(spark: SparkSession) -> None:
    # All characters of the lower planes in chunks, and the ones that break parsers.
    texts = [*NASTY, *("".join(map(chr, range(i, i + 256))) for i in range(0, 0xD800, 1024)), "\U0010ffff"]
    columns = ", ".join(f"{literal(t)} AS c{i}" for i, t in enumerate(texts))
    assert list(spark.sql(f"SELECT {columns}").collect()[0]) == texts


def test_typed_values_round_trip_through_the_engine(spark: SparkSession) -> None:
    values: list[Scalar] = [True, False, 0, -7, 2**62, 0.1, 1e-300, Decimal("12.50"), date(2024, 2, 29), date(1, 1, 1)]
    row = spark.sql("SELECT " + ", ".join(f"{literal(v)} AS c{i}" for i, v in enumerate(values))).collect()[0]
    assert list(row) == values
    plus_one = datetime(2024, 1, 1, 0, 30, 0, 5, tzinfo=timezone(timedelta(hours=1)))
    micros = spark.sql(f"SELECT unix_micros({literal(plus_one)}) AS at").collect()[0].at
    assert micros == (plus_one - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), Decimal("NaN"), datetime(2024, 1, 1), "\ud800"],
    ids=repr,
)
def test_values_without_a_literal_are_refused(value: object) -> None:
    with pytest.raises(ValueError, match=r"literal form|names no instant|surrogates"):
        literal(value)  # type: ignore[arg-type]


def test_other_types_are_refused() -> None:
    with pytest.raises(TypeError, match="list"):
        literal([1])  # type: ignore[arg-type]
