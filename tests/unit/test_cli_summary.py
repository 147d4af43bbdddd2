"""The summary tells of each dataset what became of it and why, with seconds, and what a person does next."""

from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import ClassVar

import dagster as dg
import pyarrow as pa
import pytest
from deltalake import write_deltalake

from de_assets.cli.summary import show
from de_assets.cli.terminal import console
from de_assets.dead_letters.replay import DEAD_LETTERS
from de_assets.filling import UnitOutcome, units
from de_checks.publication import NAME as IS_PUBLISHED
from de_resources.settings import Settings

DAILY = dg.DailyPartitionsDefinition("2024-10-10", end_date="2024-10-12")
FIRST, SECOND = DAILY.get_partition_keys()
RULE = "Of 3 rows some break 1 rule(s) (page_not_null: 3)."


class Broker(dg.ConfigurableResource):  # type: ignore[type-arg]
    services: ClassVar[tuple[str, ...]] = ("kafka",)


def outcome(key: dg.AssetKey | str = "days", checks: Sequence[str] = ("gate", "other")) -> UnitOutcome:
    """Of an asset of days with a blocking check and others: 1.25 seconds, nothing written."""

    @dg.asset(key=key, partitions_def=DAILY)
    def days(broker: Broker) -> None:
        pass

    specs = [dg.AssetCheckSpec(name, asset=days, blocking=name != "other") for name in checks]

    @dg.multi_asset_check(specs=specs)
    def judged() -> Iterator[dg.AssetCheckResult]:
        yield from ()

    (unit,) = units([dg.Definitions([days], asset_checks=[judged], resources={"broker": Broker()})])
    return UnitOutcome(unit, runs=1, seconds=1.25)


def judge(
    found: UnitOutcome,
    name: str,
    key: str,
    said: str = RULE,
    severity: dg.AssetCheckSeverity = dg.AssetCheckSeverity.ERROR,
) -> None:
    asset = found.unit.assets[0]
    verdict = dg.AssetCheckEvaluation(
        check_name=name, asset_key=asset, passed=False, metadata={}, severity=severity, description=said, partition=key
    )
    found.verdicts[f"{asset.to_user_string()}: {name}", key] = verdict


class Summary:
    """What `show` printed of one outcome, and whether it was good."""

    def __init__(self, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
        self.capsys, self.settings = capsys, Settings.from_environment({"DE_HOME": str(tmp_path)})

    def of(self, found: UnitOutcome) -> tuple[bool, list[str], list[str]]:
        """Good or not; the last two cells of the dataset's row; the lines below the table that tell of it."""
        good = show([found], self.settings)
        lines = self.capsys.readouterr().out.splitlines()
        (row,) = (line for line in lines if line.startswith(f"│ {found.unit.name} "))
        return (
            good,
            [cell.strip() for cell in row.strip("│ ").split("│")][-2:],
            [line.strip() for line in lines if line.startswith("  ") and "Materialised" not in line],
        )

    def rows(self, found: UnitOutcome) -> list[list[str]]:
        """The cells of the table."""
        show([found], self.settings)
        lines = (line for line in self.capsys.readouterr().out.splitlines() if line.startswith("│ "))
        return [[cell.strip() for cell in line.strip("│ ").split("│")] for line in lines]


@pytest.fixture
def summary(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Summary:
    monkeypatch.setattr(console, "width", 220)
    return Summary(capsys, tmp_path)


def test_written(summary: Summary) -> None:
    found = outcome()
    found.written = {FIRST, SECOND}
    assert summary.of(found) == (True, ["1.2", "written"], [])


@pytest.mark.parametrize(("written", "said"), [([], "up to date"), ([SECOND], "1 written, the others up to date")])
def test_up_to_date(summary: Summary, written: list[str], said: str) -> None:
    found = outcome()
    found.up_to_date, found.written = {FIRST}, {*written}
    assert summary.of(found) == (True, ["1.2", said], [])


@pytest.mark.pattern("late_data_detector")
def test_a_table_that_is_stored_by_further_columns_has_no_more_partitions_for_it(
    summary: Summary, tmp_path: Path
) -> None:
    """As `silver/visits_late`, by the hour of the landing and that of the event."""
    found = outcome()
    found.written = {FIRST, SECOND}
    day = {"day": [date(2024, 10, 10), date(2024, 10, 10), date(2024, 10, 11)], "of": [1, 2, 1], "row": [1, 2, 3]}
    write_deltalake(str(tmp_path / "lake" / "days"), pa.table(day), partition_by=["day", "of"])
    (row,) = (cells for cells in summary.rows(found) if cells[0] == "days")
    assert row[1:4] == ["2", "3", "0"], "partitions, rows, version"


def test_a_table_into_which_days_are_merged_has_no_partitions_of_its_own(summary: Summary, tmp_path: Path) -> None:
    """As `gold/user_activity`."""
    found = outcome()
    found.written = {FIRST, SECOND}
    write_deltalake(str(tmp_path / "lake" / "days"), pa.table({"row": [1, 2, 3]}))
    (row,) = (cells for cells in summary.rows(found) if cells[0] == "days")
    assert row[1:4] == ["1", "3", "0"], "as a whole"


def test_what_has_no_table_tells_what_its_runs_wrote(summary: Summary) -> None:
    """Topics, views and files."""
    found = outcome()
    found.written, found.rows = {FIRST, SECOND}, {found.unit.assets[0]: 1_234}
    (row,) = (cells for cells in summary.rows(found) if cells[0] == "days")
    assert row == ["days", "2", "1,234", "", "1.2", "written"]


def test_nothing_to_do(summary: Summary) -> None:
    assert summary.of(outcome()) == (True, ["1.2", "nothing to do"], [])


def test_a_red_check_that_holds_nothing_back_is_told_with_what_was_written(summary: Summary) -> None:
    found = outcome()
    found.written = {FIRST}
    judge(found, "other", FIRST)
    good, row, lines = summary.of(found)
    assert (good, row) == (False, ["1.2", f"written, and red: days: other [{FIRST}]"])
    assert lines == [f"failed days: other [{FIRST}]: {RULE}", "next docs/second-day.md: what each red check wants"]


def test_a_warning_is_told_with_what_it_found_and_wants_nothing(summary: Summary) -> None:
    found = outcome()
    found.written = {FIRST}
    judge(found, "other", FIRST, severity=dg.AssetCheckSeverity.WARN)
    assert summary.of(found) == (True, ["1.2", "written"], [f"warned days: other [{FIRST}]: {RULE}"])


def test_held_back_by_a_check_of_its_own(summary: Summary) -> None:
    """The table names the check and the rule as far as there is room, the line below it both in full."""
    found = outcome()
    found.written = {FIRST, SECOND}
    judge(found, "gate", FIRST, "Of 3 rows some break.")
    good, row, lines = summary.of(found)
    told = "1 of its partitions held back: the check days: gate failed: Of 3 rows some break."
    assert (good, row) == (False, ["1.2", f"{told[:79]}…"])
    assert lines[0] == f"failed days: gate [{FIRST}]: Of 3 rows some break."


def test_held_back_by_a_check_of_what_it_reads(summary: Summary) -> None:
    above = outcome("above")
    judge(above, "gate", FIRST)
    found = outcome()
    found.held_back = dict.fromkeys([FIRST, SECOND], above.bad[FIRST])
    good, row, lines = summary.of(found)
    assert good
    assert row[1].startswith("2 of its partitions held back: the check above: gate failed: Of 3")
    assert lines == [
        f"held back days [{FIRST} and 1 more]: the check above: gate failed: {RULE}",
        f"next de waits days {FIRST}: what holds it back, and all above it",
    ]


def test_two_checks_that_hold_a_partition_back_are_both_named() -> None:
    found = outcome(checks=["gate", "door"])
    judge(found, "gate", FIRST)
    judge(found, "door", FIRST, "")
    assert found.bad == {FIRST: f"the check days: gate failed: {RULE}; the check days: door failed"}


def test_held_back_by_an_audit(summary: Summary) -> None:
    found = outcome(checks=[IS_PUBLISHED])
    judge(found, IS_PUBLISHED, FIRST, "Held.")
    _, row, lines = summary.of(found)
    assert row[1].endswith(f"the check days: {IS_PUBLISHED} failed: Held.")
    assert [line.partition(": ")[0] for line in lines[1:]] == ["next de publish --list", "next docs/second-day.md"]


def test_lines_that_could_not_be_understood(summary: Summary) -> None:
    found = outcome(DEAD_LETTERS, checks=["dead_letters_do_not_prevail"])
    judge(found, "dead_letters_do_not_prevail", SECOND, "Too many.")
    *_, lines = summary.of(found)
    assert lines[1].startswith(f"next de dlq inspect --partition {SECOND}: ")


@pytest.mark.parametrize(
    ("why", "following"),
    [
        ("kafka: services were not asked for", ["de status"]),
        ("the broker has no topic `visits`; `de up kafka` makes it", []),
    ],
)
def test_left_out(summary: Summary, why: str, following: list[str]) -> None:
    """A source that is absent names its command itself."""
    found = outcome()
    found.left_out, found.runs = why, 0
    good, row, lines = summary.of(found)
    assert (good, row) == (True, ["", f"left out: {why}"])
    assert lines[0] == f"left out days: {why}"
    assert [line.partition(": ")[0] for line in lines[1:]] == [f"next {command}" for command in following]


def test_failed_beside_a_check(summary: Summary) -> None:
    """Neither hides the other one."""
    found = outcome()
    found.written, found.failures, found.failed = (
        {FIRST},
        ["days: the disk [abc] is full"],
        {SECOND: "the disk is full"},
    )
    judge(found, "gate", FIRST)
    good, row, lines = summary.of(found)
    assert (good, row) == (False, ["1.2", "failed: days: the disk [abc] is full"])
    assert lines[:2] == [f"failed days: gate [{FIRST}]: {RULE}", "error days: the disk [abc] is full"]
    assert [line.partition(": ")[0] for line in lines[2:]] == ["next docs/second-day.md", "next de run"]
