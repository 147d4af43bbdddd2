"""What comes from outside ends no line and no cell: neither in a table for people, nor in an alert."""

from __future__ import annotations

from datetime import UTC, datetime

import pandera.pyspark as pa
import pyspark.sql.types as T
import pytest

from de_assets.automation.alerting.alert import Alert, printable, redacted
from de_assets.automation.late_data.report import as_table
from de_resources.contract import Contract
from de_resources.delta.log.changed_partitions import PartitionChange
from de_resources.delta.metadata import markdown_table
from de_resources.late_data.plan import ConsumerPartition, JudgedPartition, LateVerdict

pytestmark = pytest.mark.faults

NOW = datetime(2026, 1, 1, tzinfo=UTC)
FORGED = "| forged | row |"
ENDS = ["\n", "\r", "\r\n", "\x0b", "\x0c", "\x1b[2J", "\x85", "\u2028", "\u2029", "\0", "\u202e"]
ENDINGS = pytest.mark.parametrize("end", ENDS, ids=[repr(end) for end in ENDS])


class Pages(pa.DataFrameModel):
    """One row per page."""

    page: T.StringType = pa.Field(nullable=True)

    class Config:
        name = "silver.pages"


@ENDINGS
@pytest.mark.parametrize("contract", [None, Contract.of(Pages)], ids=["plain", "by contract"])
def test_a_value_ends_neither_a_line_nor_a_cell_of_a_table(end: str, contract: Contract | None) -> None:
    told = markdown_table(["page"], [{"page": f"/home{end}{FORGED}"}, {"page": "/"}], contract)
    lines = told.splitlines()
    assert len(lines) == 4
    assert [line.count("|") for line in lines] == [2, 2, 2, 2]
    assert "forged" in lines[2], "what was said is shown, on the line of who said it"
    assert all(line.isprintable() for line in lines)


@ENDINGS
def test_somebody_elses_commit_forges_no_row_of_the_report_on_late_data(end: str) -> None:
    change = PartitionChange(7, NOW, f"MERGE{end}{FORGED}", run="")
    late = JudgedPartition(
        ConsumerPartition("2026-01-01", NOW, change, processed_by=1), LateVerdict.REQUESTED, "version 7"
    )
    lines = as_table([late]).splitlines()
    assert len(lines) == 3
    assert lines[2].count("|") == lines[0].count("|")
    assert lines[2].isprintable()


@ENDINGS
def test_an_error_forges_no_second_line_of_a_log(end: str) -> None:
    said = redacted(f"no such page{end}ERROR: all is lost")
    assert said.startswith("no such page")
    assert said.isprintable()
    key = printable(f"2026-01-01{end}2026-01-02")
    alert = Alert("run_failed", "ERROR", "r", NOW.isoformat(), ("gold/sales",), (key,), 1)
    assert alert.sentence().isprintable()
    assert len(alert.sentence().splitlines()) == 1
