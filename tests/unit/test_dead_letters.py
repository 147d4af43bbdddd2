"""What may be decided about dead letters, and how a decision is landed."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from de_assets.dead_letters.letters import (
    DecidedLetters,
    Letter,
    NoDiscardReason,
    Repaired,
    UnknownLetter,
    UnusableRepair,
    discards,
    newest,
    read_repaired,
    repairs,
    retries,
)
from de_assets.sources.decisions import Decision, UnreadableDecision, decided, decided_at, decision_files, land
from de_assets.transforms.error_management.dead_letter import DeadLetterKind

pytestmark = pytest.mark.pattern("dead_letter")

HOUR = datetime(2026, 1, 31, 7, tzinfo=UTC)
CANARY = "canary.person@example.org"


def letter(name: str, status: str = "open", attempts: int = 0, raw: str | None = None) -> Letter:
    return Letter(name, HOUR, "broken", None, status, attempts, None, "visits/f", None, None, raw)


def made(plan: DecidedLetters) -> list[tuple[str, str, int]]:
    return [(d.letter_id, str(d.kind), d.attempt) for decisions in plan.hours.values() for d in decisions]


def test_each_copy_of_a_letter_can_be_repaired_once() -> None:
    copies = [letter("a"), letter("a"), letter("b", attempts=1)]
    lines = [Repaired(1, "a", "x"), Repaired(2, "b", "y"), Repaired(3, "a", "z")]
    assert made(repairs("f", lines, copies, {})) == [("a", "repaired", 1), ("b", "repaired", 2), ("a", "repaired", 1)]
    with pytest.raises(UnusableRepair, match="f, line 4: the letter `a` has 2"):
        repairs("f", [*lines, Repaired(4, "a", "w")], copies, {})


def test_a_line_that_nobody_changed_stays_open() -> None:
    lines = [Repaired(1, "a", "as it was"), Repaired(2, "b", "mended")]
    plan = repairs("f", lines, [letter("a", raw="as it was"), letter("b", raw="broken")], {})
    assert (made(plan), plan.unchanged) == ([("b", "repaired", 1)], {"a"})


@pytest.mark.parametrize("kind", [DeadLetterKind.REPAIRED, DeadLetterKind.DISCARDED])
def test_what_was_decided_before_is_said_and_not_decided_again(kind: DeadLetterKind) -> None:
    """Also when the hour has not been run since, so that the table still calls it open."""
    before = newest([(HOUR, Decision("a", DeadLetterKind.RETRIED, 1)), (HOUR, Decision("a", kind, 1))])
    for plan in (
        repairs("f", [Repaired(1, "a", "x")], [letter("a")], before),
        repairs("f", [Repaired(1, "a", "x")], [], before),
        retries([letter("a")], before),
        discards(["a"], [letter("a")], before, "why"),
    ):
        assert (made(plan), plan.resolved, plan.concerned) == ([], {"a": str(kind)}, {HOUR})


def test_a_retried_letter_is_marked_once_and_may_still_be_repaired_or_is_back() -> None:
    before = newest([(HOUR, Decision("a", DeadLetterKind.RETRIED, 1))])
    again = retries([letter("a", attempts=1)], before)
    assert (made(again), again.due) == ([], {HOUR})
    assert made(repairs("f", [Repaired(1, "a", "x")], [letter("a", attempts=1)], before)) == [("a", "repaired", 2)]
    assert repairs("f", [Repaired(1, "a", "x")], [], before).resolved == {"a": "understood"}


def test_an_unknown_letter_is_named_with_its_line() -> None:
    with pytest.raises(UnknownLetter, match=r"f, line 7: there is no dead letter `zz`"):
        repairs("f", [Repaired(7, "zz", "x")], [letter("a")], {})
    with pytest.raises(UnknownLetter, match="identity 2"):
        discards(["a", "zz"], [letter("a")], {}, "why")


@pytest.mark.parametrize("why", ["", "  ", "x" * 501])
def test_a_discard_needs_a_reason_of_bounded_length(why: str) -> None:
    with pytest.raises(NoDiscardReason):
        discards(["a"], [letter("a")], {}, why)


@pytest.mark.parametrize(
    "line",
    [
        CANARY,
        json.dumps(["id", CANARY]),
        json.dumps({"id": "a"}),
        json.dumps({"id": 1, "raw": CANARY}),
        json.dumps({"id": "a", "raw": None}),
        json.dumps({"id": "a", "raw": " "}),
        json.dumps({"id": "a", "raw": f"{CANARY}\n{CANARY}"}),
        json.dumps({"id": "a", "raw": f"{CANARY}\ud800"}),
    ],
)
def test_an_unusable_line_is_named_and_not_shown(tmp_path: Path, line: str) -> None:
    file = tmp_path / "repaired.jsonl"
    file.write_text(json.dumps({"id": "a", "raw": "{}"}) + "\n\n" + line + "\n")
    with pytest.raises(UnusableRepair, match=r"repaired\.jsonl, line 3") as error:
        read_repaired(file)
    assert CANARY not in str(error.value)


def test_a_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(UnusableRepair, match="cannot be read"):
        read_repaired(tmp_path / "none")


def test_what_is_landed_is_read_back_and_the_same_twice_is_no_change(tmp_path: Path) -> None:
    decisions = [
        Decision("a", DeadLetterKind.REPAIRED, 1, raw="Grüße \u2028 {}"),
        Decision("b", DeadLetterKind.DISCARDED, 0, why="old"),
    ]
    assert land(tmp_path, HOUR, decisions)
    landed_at = decided_at(tmp_path, HOUR)
    assert not land(tmp_path, HOUR, decisions)
    assert list(decided(tmp_path)) == [(HOUR, d) for d in decisions]
    assert decided_at(tmp_path, HOUR) == landed_at
    (file,) = decision_files(tmp_path, [HOUR])
    assert file.stat().st_mode & 0o777 == 0o600
    assert not list(tmp_path.glob("_incoming*"))


def test_a_file_that_holds_something_else_is_named(tmp_path: Path) -> None:
    land(tmp_path, HOUR, [Decision("a", DeadLetterKind.RETRIED, 1)])
    (file,) = decision_files(tmp_path, [HOUR])
    file.write_text(CANARY)
    with pytest.raises(UnreadableDecision, match="Line 1 of `visits_decisions/date=2026-01-31/hour=07/") as error:
        list(decided(tmp_path))
    assert CANARY not in str(error.value)
