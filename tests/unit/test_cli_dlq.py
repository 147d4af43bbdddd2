"""`de dlq`: what it refuses before anything is read or decided, and which status it ends with when hours were run."""

from datetime import datetime
from pathlib import Path

import dagster as dg
import pytest
import typer
from typer.testing import CliRunner

from de_assets.cli import dlq
from de_assets.cli.application import application
from de_assets.dead_letters import replay
from de_assets.dead_letters.letters import DecidedLetters
from de_assets.filling import UnitOutcome, run_keys, units
from de_assets.partitions import CALENDAR

pytestmark = pytest.mark.pattern("dead_letter")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["inspect"], "There are no dead letters yet"),
        (["inspect", "--partition", "yesterday"], "`yesterday` is no hour of the calendar"),
        (["replay"], "Say what to replay"),
        (["replay", "--all", "--repaired", "file"], "Say what to replay"),
        (["replay", "--repaired", "file", "--reason", "r"], "names its letters itself"),
        (["replay", "--repaired", "nowhere.jsonl"], "nowhere.jsonl: it cannot be read"),
        (["discard", "--why", "w"], "Say what to discard"),
        (["discard", "--reason", "r", "--why", "w"], "Say what to discard"),
        (["discard", "0" * 16, "--partition", "2024-10-10-05:00", "--reason", "r"], "Say what to discard"),
    ],
)
def test_what_is_unclear_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], told: str
) -> None:
    monkeypatch.setenv("DE_HOME", str(tmp_path))
    result = CliRunner().invoke(application(), ["dlq", *arguments])
    assert (result.exit_code, result.stdout) == (1, "")
    assert told in " ".join(result.stderr.split())
    assert not (tmp_path / "landing" / "visits_decisions").exists()


def hour_of(gate: str, other: str) -> dg.Definitions:
    """An hour with a blocking check and another one; each `passes`, `fails` or `breaks`."""

    @dg.asset
    def hour() -> None:
        pass

    def judged(name: str, how: str, *, blocking: bool) -> dg.AssetChecksDefinition:
        @dg.asset_check(asset=hour, name=name, blocking=blocking)
        def check() -> dg.AssetCheckResult:
            if how == "breaks":
                raise OSError("the disk is gone")
            return dg.AssetCheckResult(passed=how == "passes")

        return check

    checks = [judged("gate", gate, blocking=True), judged("other", other, blocking=False)]
    return dg.Definitions([hour], asset_checks=checks, executor=dg.in_process_executor)


@pytest.mark.parametrize(
    ("gate", "other", "told"),
    [
        ("passes", "passes", []),
        ("passes", "fails", ["failed hour: other"]),
        ("fails", "passes", ["failed hour: gate"]),
        ("passes", "breaks", ["error hour_other: OSError: the disk is gone"]),
        ("fails", "breaks", ["failed hour: gate", "error hour_other: OSError: the disk is gone"]),
    ],
)
def test_what_goes_on_being_held_back_is_no_success(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    gate: str,
    other: str,
    told: list[str],
) -> None:
    """A check that holds nothing back may be about other hours than those that were replayed."""

    def run_hours(instance: dg.DagsterInstance, hours: list[datetime]) -> UnitOutcome:
        assert hours == [CALENDAR.start]
        (unit,) = units([hour_of(gate, other)])
        outcome = UnitOutcome(unit)
        run_keys(instance, unit, None, outcome)
        return outcome

    monkeypatch.setenv("DE_HOME", str(tmp_path))
    monkeypatch.setattr(replay, "run_hours", run_hours)
    monkeypatch.setattr(replay, "stale", lambda *_: {})
    monkeypatch.setattr(dlq, "_letters", lambda *_: [])
    status = 0
    try:
        dlq._decide(lambda _: DecidedLetters(due={CALENDAR.start}), runs=True)
    except typer.Exit as end:
        status = end.exit_code
    said = capsys.readouterr().out
    assert [line.strip() for line in said.splitlines() if line.startswith("  ")] == told
    assert status == int(gate == "fails" or other == "breaks")
