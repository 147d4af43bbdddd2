"""Text by allow-list: nothing is guessed, and a column that only one line has is noticed."""

from __future__ import annotations

from pathlib import Path

import pandera.pyspark as pa
import pyspark.sql.types as T
import pytest
from pyspark.sql import SparkSession

from de_resources.contract import Contract
from de_resources.replication.allow_list import UnclassifiedColumns
from de_resources.replication.text import BrokenLines, read_allowed_text


class Orders(pa.DataFrameModel):
    """One row per order."""

    price: T.StringType = pa.Field(nullable=True, description="Price as text")
    email: T.StringType = pa.Field(nullable=True, description="Customer", metadata={"personal": True})
    placed: T.StringType = pa.Field(nullable=True, description="When, as text")

    class Config:
        name = "landing.orders"


VALUES = [("1.10", "2024-01-05 07:03"), ("1E5", "31/02/2024"), ("007", "2024-10-10T00:00:00+02:00")]
CSV = "email;price;placed\n" + "".join(f"a@example.org;{price};{placed}\n" for price, placed in VALUES)
JSON = "".join(f'{{"placed": "{placed}", "email": "a@example.org", "price": "{price}"}}\n' for price, placed in VALUES)


@pytest.mark.pattern("transformation_replicator")
@pytest.mark.parametrize(("kind", "text"), [("csv", CSV), ("json", JSON)])
def test_numbers_and_timestamps_stay_the_text_they_are(
    tmp_path: Path, spark: SparkSession, kind: str, text: str
) -> None:
    file = tmp_path / f"orders.{kind}"
    file.write_text(text)

    frame = read_allowed_text(spark, [str(file)], kind, Contract.of(Orders), **({"sep": ";"} if kind == "csv" else {}))  # type: ignore[arg-type]

    assert frame.dtypes == [("price", "string"), ("placed", "string")]
    assert sorted(tuple(row) for row in frame.collect()) == sorted(VALUES)


@pytest.mark.pattern("transformation_replicator")
def test_a_number_without_quotes_keeps_its_zeros(tmp_path: Path, spark: SparkSession) -> None:
    file = tmp_path / "orders.json"
    file.write_text('{"price": 1.10, "placed": 20240105}\n')

    rows = read_allowed_text(spark, [str(file)], "json", Contract.of(Orders)).collect()

    assert [tuple(row) for row in rows] == [("1.10", "20240105")]


@pytest.mark.pattern("transformation_replicator")
def test_a_column_that_only_the_last_line_has_stops_the_run(tmp_path: Path, spark: SparkSession) -> None:
    file = tmp_path / "orders.json"
    file.write_text(JSON + '{"price": "1", "placed": "x", "phone": "+1 555"}\n')

    with pytest.raises(UnclassifiedColumns, match="`phone`") as error:
        read_allowed_text(spark, [str(file)], "json", Contract.of(Orders))

    assert "555" not in str(error.value)


@pytest.mark.pattern("transformation_replicator")
@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("json", JSON + '{"email": "a@example.org", "pla'),
        ("csv", CSV + "a@example.org;1\n"),
        ("csv", CSV + "a;1;2;more\n"),
    ],
    ids=["JSON cut off", "a value too few", "a value too many"],
)
def test_broken_lines_are_counted_by_file_without_their_content(
    tmp_path: Path, spark: SparkSession, kind: str, text: str
) -> None:
    whole, broken = tmp_path / f"whole.{kind}", tmp_path / f"broken.{kind}"
    whole.write_text(CSV if kind == "csv" else JSON)
    broken.write_text(text)

    with pytest.raises(BrokenLines) as error:
        read_allowed_text(spark, [str(whole), str(broken)], kind, Contract.of(Orders), sep=";")  # type: ignore[arg-type]

    assert error.value.files == {broken.name: 1}
    assert "example.org" not in str(error.value)


@pytest.mark.pattern("transformation_replicator")
def test_a_wrong_delimiter_is_a_column_that_nobody_classified(tmp_path: Path, spark: SparkSession) -> None:
    file = tmp_path / "orders.csv"
    file.write_text(CSV)

    with pytest.raises(UnclassifiedColumns, match="`email;price;placed`"):
        read_allowed_text(spark, [str(file)], "csv", Contract.of(Orders))
