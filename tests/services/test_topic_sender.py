"""Records into a topic of a real broker, one by one, by key, per partition: in order while sends fail, and after a death."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Timer
from typing import Any
from uuid import uuid4

import pytest
import warm_process
from outbox_client import into_topic
from platform_world import pid_of
from waiting import PATIENCE

from de_resources.delivery.errors import ReceiverUnavailable
from de_resources.delivery.fifo_orderer import by_key, one_by_one
from de_resources.delivery.records import Answers, Outcome, OutgoingRecord
from de_resources.delivery.topic_sender import Flavour, TopicSender
from de_resources.kafka import KafkaBroker, Record, TopicMissing, TopicSpec
from de_resources.kafka.reader import read_topic
from de_resources.local import LocalServices
from de_resources.postgres import PostgresDatabase

pytestmark = [pytest.mark.services, pytest.mark.pattern("fifo_orderer")]

PARTITIONS, WINDOW = 3, 30
IMPATIENT = {
    "request.timeout.ms": 1000,
    "socket.timeout.ms": 1000,
    "retry.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
}


def records_of(number: int, keys: int = 11) -> list[OutgoingRecord]:
    seen: Counter[str] = Counter()
    made = []
    for n in range(1, number + 1):
        key = f"k{n * n % keys}"
        seen[key] += 1
        made.append(OutgoingRecord("s", n, key, seen[key], json.dumps({"n": n})))
    return made


@dataclass
class Topic:
    """A topic of its own, and what a reader of it finds."""

    name: str
    config: dict[str, str] = field(repr=False)

    def sender(self, flavour: Flavour = Flavour.IDEMPOTENT, **more: Any) -> TopicSender:
        return TopicSender(self.config, self.name, flavour, **more)

    def arrivals(self) -> list[Record]:
        return read_topic(self.config, self.name).records

    def by_key(self) -> dict[str, list[int]]:
        """The sequences as a reader meets them, copies included; a partition in its order."""
        found: defaultdict[str, list[int]] = defaultdict(list)
        for record in self.arrivals():
            found[(record.key or b"").decode()].append(int(dict(record.headers or ())["sequence"] or 0))
        return dict(found)


@pytest.fixture
def topic(at_home: LocalServices) -> Topic:
    name = f"fifo-{uuid4().hex[:8]}"
    KafkaBroker().ensure_topics([TopicSpec(name, PARTITIONS, {"max.message.bytes": "4096"})])
    return Topic(name, KafkaBroker().client_config())


def expected(records: Sequence[OutgoingRecord]) -> dict[str, list[int]]:
    found: defaultdict[str, list[int]] = defaultdict(list)
    for record in records:
        found[record.key].append(record.sequence)
    return dict(found)


def first_arrivals(sequences: Sequence[int]) -> list[int]:
    """What a reader keeps who drops what is not above the last."""
    kept: list[int] = []
    for sequence in sequences:
        if sequence > (kept[-1] if kept else 0):
            kept.append(sequence)
    return kept


Send = Callable[[TopicSender, Sequence[OutgoingRecord]], Iterator[Answers]]
FLAVOURS: dict[str, tuple[Flavour, Send]] = {
    "one by one": (Flavour.INDIVIDUAL, lambda sender, records: one_by_one(records, sender.send)),
    "by key": (Flavour.INDIVIDUAL, lambda sender, records: by_key(records, sender.send, lanes=4)),
    "one in flight": (Flavour.ONE_IN_FLIGHT, lambda sender, records: sender.pipelined(records, WINDOW)),
    "idempotent": (Flavour.IDEMPOTENT, lambda sender, records: sender.pipelined(records, WINDOW)),
}
every_flavour = pytest.mark.parametrize(("flavour", "send"), FLAVOURS.values(), ids=FLAVOURS)


@every_flavour
def test_every_key_arrives_in_order_complete_and_once_with_a_receipt_for_each(
    topic: Topic, flavour: Flavour, send: Send
) -> None:
    records = records_of(250)
    with topic.sender(flavour) as sender:
        told = {r: a for answers in send(sender, records) for r, a in answers.items()}
    assert topic.by_key() == expected(records)
    receipts = {a.said for a in told.values()}
    assert receipts == {f"{record.partition}@{record.offset}" for record in topic.arrivals()}
    assert len(receipts) == len(records)
    ids = [dict(record.headers or ())["id"] for record in topic.arrivals()]
    assert {id_.decode() for id_ in ids if id_} == {record.id for record in records}


@contextmanager
def frozen(services: LocalServices, seconds: float | None = None) -> Iterator[None]:
    """The broker's process stands still, for a while or to the end: requests time out, though it may have them."""
    pid = pid_of(services, "kafka")
    os.kill(pid, signal.SIGSTOP)
    thaw = Timer(seconds or 0, os.kill, (pid, signal.SIGCONT))
    if seconds is not None:
        thaw.start()
    try:
        yield
    finally:
        if seconds is not None:
            thaw.join()
        os.kill(pid, signal.SIGCONT)


@pytest.mark.faults
@every_flavour
def test_a_broker_that_stands_still_costs_copies_at_most_and_never_the_order(
    topic: Topic, services: LocalServices, flavour: Flavour, send: Send
) -> None:
    records = records_of(60)
    with topic.sender(flavour, more=IMPATIENT) as sender:
        answers = send(sender, records)
        next(answers)  # it is connected, and in the middle: what it sends now arrives, and its receipts do not
        with frozen(services, 2.0):
            list(answers)
    found = topic.by_key()
    assert {key: first_arrivals(each) for key, each in found.items()} == expected(records)
    if flavour is Flavour.INDIVIDUAL:
        assert all(each == sorted(each) for each in found.values()), "a copy comes right behind its original"
    if flavour is Flavour.IDEMPOTENT:
        assert found == expected(records), "the broker knows a batch that is sent again"


@pytest.mark.faults
@every_flavour
def test_a_broker_that_is_away_stops_the_line_and_a_later_send_goes_on_where_receipts_end(
    topic: Topic, services: LocalServices, flavour: Flavour, send: Send
) -> None:
    records, noted = records_of(40), set[OutgoingRecord]()
    stuck = pytest.raises(ReceiverUnavailable, match="goes on there")
    with topic.sender(flavour, seconds=1.0, more=IMPATIENT) as sender, frozen(services), stuck:
        noted.update(record for answers in send(sender, records) for record in answers)
    with topic.sender(flavour) as sender:
        list(send(sender, [record for record in records if record not in noted]))
    assert {key: first_arrivals(each) for key, each in topic.by_key().items()} == expected(records)


@every_flavour
def test_a_record_that_the_topic_does_not_take_is_refused_and_its_key_is_held(
    topic: Topic, flavour: Flavour, send: Send
) -> None:
    small, large = records_of(30, keys=3), "x" * 10_000
    records = [OutgoingRecord(r.stream, r.number, r.key, r.sequence, large if r.number == 7 else r.body) for r in small]
    with topic.sender(flavour) as sender:
        told = {r: a for answers in send(sender, records) for r, a in answers.items()}
    refused = [r for r, answer in told.items() if answer.outcome is Outcome.REFUSED]
    assert [r.number for r in refused] == [7]
    held = [r for r in records if r.key == refused[0].key and r.number >= 7]
    assert topic.by_key() == expected([r for r in records if r not in held])


def test_an_absent_topic_is_named(topic: Topic) -> None:
    with pytest.raises(TopicMissing, match="`nowhere`"):
        TopicSender(topic.config, "nowhere")


@pytest.mark.faults
@pytest.mark.parametrize(
    "point",
    ["after_commit:{}", "before_commit:{}:receipts", "after_commit:{}:receipts"],
    ids=["after the plan", "before the note", "after the note"],
)
def test_after_a_kill_the_next_run_goes_on_and_a_reader_knows_what_came_twice(
    topic: Topic, point: str, tmp_path: Path
) -> None:
    feed = f"shop_{uuid4().hex[:8]}.orders"
    rows = [("1", f"s{n % 5}", n, n * n) for n in range(90)]
    environment = {**os.environ, "DE_KILL_AT": point.format(feed)}
    process = warm_process.start(
        "outbox_client:into_topic", feed, topic.name, rows, environment=environment, output=tmp_path / "said"
    )
    process.join(PATIENCE)
    assert process.exitcode == -signal.SIGKILL, (tmp_path / "said").read_text()
    before = len(topic.arrivals())
    assert (before > 0) == point.endswith("receipts")

    into_topic(feed, topic.name, rows)
    found = topic.by_key()
    assert {key: first_arrivals(each) for key, each in found.items()} == {f"s{n}": list(range(1, 19)) for n in range(5)}
    copies = sum(map(len, found.values())) - 90
    # One window of records had no receipt.
    assert copies == (before if point.startswith("before_commit") else 0)
    into_topic(feed, topic.name, rows)
    assert topic.by_key() == found, "a rerun sends nothing"
    with PostgresDatabase().connect() as session, session.cursor() as cursor:
        cursor.execute(f"SELECT count(*) FROM {feed}; DROP SCHEMA {feed.partition('.')[0]} CASCADE")
