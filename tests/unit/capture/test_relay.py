"""The relay's bookkeeping on what a server really sent, and the loop that runs a capture again after each failure."""

from __future__ import annotations

import json
import logging
from itertools import accumulate, chain
from pathlib import Path
from threading import Event

import pytest

from de_resources.capture import __main__ as process
from de_resources.capture.envelope import Position
from de_resources.capture.pgoutput import Relation
from de_resources.capture.relay import Fenced, _Transactions
from de_resources.capture.snapshot_pace import SnapshotTooLong
from de_resources.capture.source import CaptureSource

pytestmark = pytest.mark.pattern("change_data_capture")

SOURCE = CaptureSource("people", ("public.people",), "people")
STEPS = json.loads((Path(__file__).parents[2] / "data" / "pgoutput.json").read_text())["steps"]
MESSAGES = [[bytes.fromhex(message) for message in step["messages"]] for step in STEPS]


def collected(known: Position | None = None) -> _Transactions:
    def key(relation: Relation) -> tuple[str, ...]:
        return (relation.columns[0][0],)

    return _Transactions(key, known)


def relayed(known: Position | None = None) -> list[Position]:
    """The positions of all records of the stream that a relay produces which found `known` in the topic."""
    transactions = collected(known)
    for message in chain.from_iterable(MESSAGES):
        transactions.add(message)
    return [record.position for record in transactions.take()]


def test_a_transaction_is_ready_when_it_has_ended_and_not_before() -> None:
    transactions = collected()
    for messages in MESSAGES:
        for message in messages[:-1]:
            transactions.add(message)
            assert (transactions.open, transactions.ready, transactions.end_lsn) == (True, 0, 0)
        transactions.add(messages[-1])
        assert not transactions.open
        assert transactions.end_lsn > 0, "up to here may be confirmed"
        ready = transactions.ready
        assert len(transactions.take()) == ready
        assert transactions.take() == [], "each record once"
        transactions.end_lsn = 0


def test_what_the_topic_has_already_is_left_out_also_from_the_middle_of_a_transaction() -> None:
    every = relayed()
    assert len(every) > len(MESSAGES) / 2
    assert every == sorted(every)
    for known in set(every):
        assert relayed(known) == [position for position in every if position > known]


class Counted(Event):
    """The order to stop, which comes after so many pauses and notes how long each was to last."""

    def __init__(self, pauses: int) -> None:
        super().__init__()
        self.left, self.pauses = pauses, list[float]()

    def wait(self, timeout: float | None = None) -> bool:
        self.pauses.append(timeout or 0)
        self.left -= 1
        if not self.left:
            self.set()
        return self.is_set()


def test_a_capture_that_fails_is_run_again_after_growing_pauses_until_it_is_stopped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """No database runs in the home of the tests, so that every attempt fails."""
    stopping, said = Counted(40), {SOURCE.name: "starting"}
    with caplog.at_level(logging.WARNING, logger="capture"):
        process.keep_relaying(SOURCE, stopping, said)
    passed = list(accumulate(stopping.pauses))
    assert stopping.pauses[0] == 0.2
    assert all(pause <= 0.2 + before / 4 for before, pause in zip(passed, stopping.pauses[1:], strict=False)), (
        "soon back"
    )
    assert stopping.pauses[-10:] == [30.0] * 10, "what stays away is left alone"
    assert said[SOURCE.name].startswith("waiting: ")
    assert "de up postgres" in said[SOURCE.name]
    assert caplog.text.count("de up postgres") == 1, "what does not change is told once"


@pytest.mark.parametrize(
    ("failure", "told"),
    [
        (Fenced(SOURCE), "waiting: Another capture"),
        (KeyError("lsn"), "failed: KeyError"),
        (SnapshotTooLong(SOURCE, 1, 60, 570, 9_000), "waiting: The snapshot of the capture `people` is too long"),
    ],
    ids=["fenced", "nobody thought of it", "a snapshot that cannot end"],
)
def test_a_capture_that_was_fenced_or_fails_oddly_says_so_and_is_run_again_later(
    monkeypatch: pytest.MonkeyPatch, failure: Exception, told: str
) -> None:
    runs = []

    def run(capture: process.Capture, _stop: object, _started: object) -> None:
        runs.append(capture.source)
        raise failure

    monkeypatch.setattr(process.Capture, "run", run)
    stopping, said = Counted(3), {SOURCE.name: "starting"}
    process.keep_relaying(SOURCE, stopping, said)
    assert runs == [SOURCE] * 3
    assert stopping.pauses == [3_600.0 if isinstance(failure, SnapshotTooLong) else 10.0] * 3
    assert said[SOURCE.name].startswith(told)


def test_after_a_run_that_ended_well_the_pauses_begin_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    fails = iter([True, True, True, False, True, True])

    def run(capture: process.Capture, _stop: object, _started: object) -> None:
        if next(fails):
            raise process.PlatformError("away")

    monkeypatch.setattr(process.Capture, "run", run)
    stopping = Counted(5)
    process.keep_relaying(SOURCE, stopping, {SOURCE.name: ""})
    assert stopping.pauses == [0.2, 0.25, 0.3125, 0.2, 0.25]
