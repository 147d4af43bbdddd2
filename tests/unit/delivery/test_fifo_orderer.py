"""Lines of records against a model of a receiver: it rejects, refuses and goes away as it likes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from threading import Barrier, Lock
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from waiting import PATIENCE

from de_resources.delivery.bin_pack_orderer import Patience
from de_resources.delivery.errors import DeliveryStalled
from de_resources.delivery.fifo_orderer import by_key, one_by_one
from de_resources.delivery.records import Answer, Answers, Outcome, OutgoingRecord

pytestmark = pytest.mark.pattern("fifo_orderer")

KEYS = st.lists(st.integers(0, 5).map(str), max_size=30)
SEEDS = st.integers(0, 2**32)
NO_PAUSE = Patience(attempts=1000, wait=lambda _seconds: None)
Line = Callable[..., Iterator[Answers]]
LINES: dict[str, Line] = {"one by one": one_by_one, "by key": by_key, "by key, two lanes": partial(by_key, lanes=2)}


class Gone(Exception):
    """The receiver does not answer."""


def records_of(keys: Sequence[str]) -> list[OutgoingRecord]:
    seen: Counter[str] = Counter()
    records = []
    for number, key in enumerate(keys, 1):
        seen[key] += 1
        records.append(OutgoingRecord("s", number, key, seen[key], "{}"))
    return records


@dataclass
class Receiver:
    """What arrived, in its order. Never two records of one key are here at once."""

    seed: int
    rejects: float = 0.0
    loses: float = 0.0
    """Share of answers that are lost, after the record was taken or before."""
    never: frozenset[int] = frozenset()
    arrived: list[OutgoingRecord] = field(default_factory=list)
    inside: Counter[str] = field(default_factory=Counter)
    most: int = 0
    lock: Any = field(default_factory=Lock)

    def take(self, record: OutgoingRecord) -> Answer:
        with self.lock:
            self.inside[record.key] += 1
            assert self.inside[record.key] == 1, "two records of one key at once"
            self.most = max(self.most, self.inside.total())
        try:
            return self._judged(record)
        finally:
            with self.lock:
                self.inside[record.key] -= 1

    def _judged(self, record: OutgoingRecord) -> Answer:
        with self.lock:
            # By record and attempt, whatever thread comes first.
            self.attempts[record] += 1
            draw = Random(f"{self.seed}-{record.number}-{self.attempts[record]}")  # noqa: S311
            if record.number in self.never:
                return Answer(Outcome.REFUSED)
            if draw.random() < self.rejects:
                return Answer(Outcome.REJECTED)
            lost = draw.random() < self.loses
            if not lost or draw.random() < 0.5:
                self.arrived.append(record)
            if lost:
                raise Gone
            return Answer(Outcome.ACCEPTED)

    attempts: Counter[OutgoingRecord] = field(default_factory=Counter)

    def sequences(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for record in self.arrived:
            found.setdefault(record.key, []).append(record.sequence)
        return found


@pytest.mark.parametrize("line", LINES.values(), ids=LINES)
@given(KEYS, SEEDS)
def test_every_key_arrives_in_order_complete_and_once(line: Line, keys: list[str], seed: int) -> None:
    receiver, records = Receiver(seed, rejects=0.4), records_of(keys)
    told = {r: a for each in line(records, receiver.take, patience=NO_PAUSE) for r, a in each.items()}
    assert receiver.sequences() == {key: list(range(1, keys.count(key) + 1)) for key in keys}
    assert told.keys() == set(records)
    if line is one_by_one:
        assert receiver.arrived == records, "the order of the whole stream"


@pytest.mark.parametrize("line", LINES.values(), ids=LINES)
@given(KEYS, SEEDS)
def test_sends_that_fail_cost_copies_and_never_the_order(line: Line, keys: list[str], seed: int) -> None:
    """Each run notes what it was told, and the next one sends the rest: what is known for sure is sent once."""
    receiver, records, noted = Receiver(seed, rejects=0.2, loses=0.3), records_of(keys), set[OutgoingRecord]()
    while left := [record for record in records if record not in noted]:
        try:
            for answers in line(left, receiver.take, patience=NO_PAUSE):
                assert not noted & answers.keys()
                noted |= answers.keys()
        except Gone:
            continue
    for key, sequences in receiver.sequences().items():
        assert sequences == sorted(sequences)
        assert set(sequences) == set(range(1, keys.count(key) + 1))


@pytest.mark.parametrize("line", LINES.values(), ids=LINES)
@given(KEYS, SEEDS)
def test_a_refused_record_holds_its_key_and_no_other(line: Line, keys: list[str], seed: int) -> None:
    records = records_of(keys)
    never = frozenset(record.number for record in records if Random(f"{seed}-{record.number}").random() < 0.2)  # noqa: S311
    receiver = Receiver(seed, rejects=0.2, never=never)
    told = {r: a for each in line(records, receiver.take, patience=NO_PAUSE) for r, a in each.items()}
    first = {r.key: r.sequence for r in reversed(records) if r.number in never}
    expected = {key: list(range(1, first.get(key, keys.count(key) + 1))) for key in keys}
    assert receiver.sequences() == {key: line_ for key, line_ in expected.items() if line_}
    assert {r for r, a in told.items() if a.outcome is Outcome.REFUSED} == {
        r for r in records if first.get(r.key) == r.sequence
    }


@pytest.mark.parametrize("line", LINES.values(), ids=LINES)
def test_one_that_is_rejected_for_ever_stops_the_line(line: Line) -> None:
    receiver, told = Receiver(1, rejects=1.0), list[Answers]()
    patience = Patience(attempts=3, wait=lambda _seconds: None)
    with pytest.raises(DeliveryStalled, match="3 times"):
        told.extend(line(records_of(["a", "a"]), receiver.take, patience=patience))
    assert told == []
    assert [record.sequence for record in receiver.attempts] == [1]


def test_keys_do_not_wait_for_each_other_up_to_the_number_of_lanes() -> None:
    meeting = Barrier(3, timeout=PATIENCE)

    def take(_record: OutgoingRecord) -> Answer:
        meeting.wait()  # passes only where three are under way at once
        return Answer(Outcome.ACCEPTED)

    assert len(list(by_key(records_of(["a", "b", "c"] * 4), take, lanes=3))) >= 4
    limited = Receiver(1)
    list(by_key(records_of([str(n) for n in range(30)]), limited.take, lanes=2))
    assert 1 <= limited.most <= 2


@pytest.mark.parametrize("line", LINES.values(), ids=LINES)
def test_nothing_to_send_sends_nothing(line: Line) -> None:
    assert list(line([], Receiver(1).take)) == []
