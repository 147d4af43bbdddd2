"""Bins against a model of a receiver that takes what it likes: any records, any pattern of partial acceptance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from de_resources.delivery.bin_pack_orderer import BinLimits, Patience, deliver, pack
from de_resources.delivery.errors import DeliveryStalled
from de_resources.delivery.records import Answer, Answers, Outcome, OutgoingRecord

pytestmark = pytest.mark.pattern("bin_pack_orderer")

KEYS = st.lists(st.integers(0, 6).map(str), max_size=40)
NO_PAUSE = Patience(attempts=1000, wait=lambda _seconds: None)


def records_of(keys: Sequence[str], sizes: Sequence[int] = ()) -> list[OutgoingRecord]:
    seen: Counter[str] = Counter()
    records = []
    for number, key in enumerate(keys, 1):
        seen[key] += 1
        body = "x" * (sizes[number - 1] if sizes else 1)
        records.append(OutgoingRecord("s", number, key, seen[key], body))
    return records


@dataclass
class Receiver:
    """Knows what has arrived, in which order, and how often. `rejects` draws what is not taken now."""

    limit: int
    rejects: st.DataObject | None = None
    never: frozenset[int] = frozenset()
    """Numbers of the records that it refuses each time."""
    arrived: list[OutgoingRecord] = field(default_factory=list)
    requests: list[list[OutgoingRecord]] = field(default_factory=list)

    def take(self, bin_: Sequence[OutgoingRecord]) -> Answers:
        assert 0 < len(bin_) <= self.limit
        self.requests.append(list(bin_))
        return {record: Answer(self.judge(record)) for record in bin_}

    def judge(self, record: OutgoingRecord) -> Outcome:
        if record.number in self.never:
            return Outcome.REFUSED
        # A third of the draws: with endless bad luck no delivery ends.
        if self.rejects is not None and len(self.requests) < 200 and self.rejects.draw(st.integers(0, 2)) == 0:
            return Outcome.REJECTED
        self.arrived.append(record)
        return Outcome.ACCEPTED

    def sequences(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for record in self.arrived:
            found.setdefault(record.key, []).append(record.sequence)
        return found


@given(KEYS, st.integers(1, 8))
def test_bins_are_as_few_as_there_can_be_and_hold_each_key_once(keys: list[str], limit: int) -> None:
    records = records_of(keys)
    bins = list(pack(records, BinLimits(limit)))
    assert all(len({r.key for r in bin_}) == len(bin_) <= limit for bin_ in bins)
    sent = [record for bin_ in bins for record in bin_]
    assert Counter(sent) == Counter(records)
    for key in set(keys):
        assert [r.sequence for r in sent if r.key == key] == list(range(1, keys.count(key) + 1))
    longest = max(Counter(keys).values(), default=0)
    assert len(bins) == max(longest, ceil(len(records) / limit))


@given(KEYS, st.integers(1, 8), st.data())
def test_a_limit_in_bytes_is_kept_and_costs_no_order(keys: list[str], limit: int, data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(0, 30), min_size=len(keys), max_size=len(keys)))
    records = records_of(keys, sizes)
    bins = list(pack(records, BinLimits(limit, 20)))
    assert all(len(bin_) == 1 or sum(r.size for r in bin_) <= 20 for bin_ in bins)
    sent = [record for bin_ in bins for record in bin_]
    assert Counter(sent) == Counter(records)
    assert all([r.sequence for r in sent if r.key == key] == list(range(1, keys.count(key) + 1)) for key in set(keys))


@given(KEYS, st.integers(1, 8), st.data())
def test_whatever_part_is_taken_every_key_arrives_in_order_complete_and_once(
    keys: list[str], limit: int, data: st.DataObject
) -> None:
    receiver, records = Receiver(limit, data), records_of(keys)
    answers = list(deliver(records, receiver.take, BinLimits(limit), patience=NO_PAUSE))
    assert receiver.sequences() == {key: list(range(1, keys.count(key) + 1)) for key in keys}
    assert len(answers) == len(receiver.requests)
    # What had been taken was not sent again: the rest of a bin is retried, not the bin.
    rejected = sum(answer.outcome is Outcome.REJECTED for each in answers for answer in each.values())
    assert sum(map(len, receiver.requests)) == len(records) + rejected


@given(KEYS, st.integers(1, 8), st.data())
def test_behind_a_record_that_is_always_refused_its_key_is_held_and_the_others_go_on(
    keys: list[str], limit: int, data: st.DataObject
) -> None:
    records = records_of(keys)
    never = frozenset(data.draw(st.sets(st.sampled_from([r.number for r in records])))) if records else frozenset()
    first = {key: min((r.sequence for r in records if r.key == key and r.number in never), default=0) for key in keys}

    holding = Receiver(limit, data, never)
    told = {
        r: a for each in deliver(records, holding.take, BinLimits(limit), patience=NO_PAUSE) for r, a in each.items()
    }
    for key in set(keys):
        before = first[key] - 1 if first[key] else keys.count(key)
        assert holding.sequences().get(key, []) == list(range(1, before + 1))
    refused = {r for r, answer in told.items() if answer.outcome is Outcome.REFUSED}
    assert refused == {r for r in records if r.sequence == first[r.key]}

    going_on = Receiver(limit, data, never)
    list(deliver(records, going_on.take, BinLimits(limit), patience=NO_PAUSE, holds=False))
    assert Counter(going_on.arrived) == Counter(r for r in records if r.number not in never)
    assert all(each == sorted(each) for each in going_on.sequences().values())


@given(KEYS, st.integers(1, 8), st.integers(0, 60), st.data())
def test_a_receiver_that_goes_away_in_the_middle_gets_the_rest_later(
    keys: list[str], limit: int, lives: int, data: st.DataObject
) -> None:
    """Requests arrive, and their answers are lost: what is sent again is known by its identity, and nothing overtakes."""
    records, receiver, noted = records_of(keys), Receiver(limit, data), set[OutgoingRecord]()

    class Gone(Exception):
        pass

    def take(bin_: Sequence[OutgoingRecord]) -> Answers:
        answers = receiver.take(bin_)
        if len(receiver.requests) <= lives and data.draw(st.booleans()):
            raise Gone
        return answers

    while left := [record for record in records if record not in noted]:
        try:
            for answers in deliver(left, take, BinLimits(limit), patience=NO_PAUSE):
                noted |= {record for record, answer in answers.items() if answer.outcome.is_arrived}
        except Gone:
            continue
    for key, sequences in receiver.sequences().items():
        first_arrivals = list(dict.fromkeys(sequences))
        assert first_arrivals == list(range(1, keys.count(key) + 1))
        # A copy is of the newest record of its key, never of one before it.
        assert sequences == sorted(sequences)


def test_one_that_is_rejected_for_ever_stops_the_delivery_and_nothing_overtakes_it() -> None:
    records, waits = records_of(["a", "b", "a", "b"]), list[float]()

    def take(bin_: Sequence[OutgoingRecord]) -> Answers:
        return {r: Answer(Outcome.REJECTED if r.key == "a" else Outcome.ACCEPTED) for r in bin_}

    patience = Patience(attempts=4, first_pause=1.0, wait=waits.append)
    told: list[Answers] = []
    with pytest.raises(DeliveryStalled, match=r"1 record.*4 times") as stalled:
        told.extend(deliver(records, take, BinLimits(10), patience=patience))
    assert stalled.value.keys == ("a",)
    assert [[record.id for record in answers] for answers in told] == [["s-1", "s-2"], ["s-1"], ["s-1"], ["s-1"]]
    assert len(waits) == 3
    assert all(0 <= pause <= longest for pause, longest in zip(waits, (1.0, 2.0, 4.0), strict=True))


def test_a_record_that_no_request_can_carry_is_refused_without_a_request() -> None:
    receiver = Receiver(5)
    records = records_of(["a", "b", "a"], [100, 1, 1])
    told = {r: a for each in deliver(records, receiver.take, BinLimits(5, 50)) for r, a in each.items()}
    assert [r.key for r in receiver.arrived] == ["b"]
    assert told[records[0]].outcome is Outcome.REFUSED
    assert records[2] not in told, "it is held"


def test_nothing_to_send_sends_nothing_and_a_request_that_carries_nothing_is_no_limit() -> None:
    receiver = Receiver(5)
    assert list(deliver([], receiver.take, BinLimits(5))) == []
    assert receiver.requests == []
    with pytest.raises(ValueError, match="carries nothing"):
        BinLimits(0)
