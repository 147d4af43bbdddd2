"""Paid answers on the disk: found again by value, whoever asked; damaged ones are named."""

import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from de_resources.enrichment.errors import LookupBusy, StagedAnswersGone
from de_resources.enrichment.staged_answers import StagedAnswers

pytestmark = pytest.mark.pattern("local_sequencer")

NOW = datetime(2026, 1, 1, tzinfo=UTC)
PL, FR = {"country": "PL"}, {"country": "FR"}


@pytest.fixture
def staged(tmp_path: Path) -> StagedAnswers:
    return StagedAnswers(tmp_path / "staged", "silver.things")


def test_the_newest_answer_about_each_value_is_found_by_any_run(staged: StagedAnswers) -> None:
    new = staged.add({"a": PL, "b": None}, NOW)
    old = staged.add({"a": FR, "c": FR}, NOW - timedelta(days=1))
    again = StagedAnswers(staged.folder, staged.table)
    found = again.since(["a", "b", "c", "d"], NOW - timedelta(days=2))
    assert {v: (a.found, a.answered_at, a.batch) for v, a in found.items()} == {
        "a": (PL, NOW, new),
        "b": (None, NOW, new),
        "c": (FR, NOW - timedelta(days=1), old),
    }
    assert set(again.since(["a", "b", "c"], NOW)) == {"a", "b"}, "an old answer does not count"
    assert {a.value: a.found for a in again.read([old])} == {"a": FR, "c": FR}


def test_what_a_killed_writer_left_is_no_answer(staged: StagedAnswers) -> None:
    name = staged.add({"a": PL}, NOW)
    (staged.folder / f".{name}x.json").write_text('{"at": "2026')
    assert set(staged.since(["a"], NOW)) == {"a"}


@pytest.mark.parametrize("damage", ["", "[1]", "{}", '{"at": "today", "answers": {}}'])
def test_damaged_answers_are_named(staged: StagedAnswers, damage: str) -> None:
    name = staged.add({"a": PL}, NOW)
    (staged.folder / name).write_text(damage)
    with pytest.raises(StagedAnswersGone, match=name):
        staged.read([name])


def test_what_was_wanted_comes_back_and_what_is_gone_is_named(staged: StagedAnswers) -> None:
    name = staged.note_wanted({"b", "a"})
    assert staged.wanted(name) == ["a", "b"]
    assert staged.sweep(datetime.now(UTC) - timedelta(minutes=1)) == 0
    assert staged.sweep(datetime.now(UTC) + timedelta(minutes=1)) == 1
    with pytest.raises(StagedAnswersGone, match="not there any more"):
        staged.wanted(name)
    answers = staged.add({"a": PL}, NOW)
    with pytest.raises(StagedAnswersGone, match="no list"):
        staged.wanted(answers)


def test_two_do_not_ask_at_once(staged: StagedAnswers) -> None:
    refused: list[BaseException] = []

    def second() -> None:
        try:
            with StagedAnswers(staged.folder, staged.table).alone(0.01):
                pass
        except LookupBusy as error:
            refused.append(error)

    with staged.alone(1):
        thread = threading.Thread(target=second)
        thread.start()
        thread.join()
    assert len(refused) == 1
    with staged.alone(0.01):
        pass
