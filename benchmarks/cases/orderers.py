"""Ten thousand records of 200 keys on their way to three receivers, each key in its order, in every flavour.

A receiver inside the process takes 2.5 ms for a record, and lets several wait at once: one by one beside ten lanes of keys,
with nothing else to pay for. The partner over HTTP takes part of a batch (a twentieth of the records is rejected at first),
up to 200 records, on a connection that is kept: bins beside one record per request, with the number of requests in the note.
The broker, three partitions: one by one, ten lanes, batches with one request in flight, and the idempotent producer, in windows
of 2,000. Nothing is planned or noted in a database. Equal: every receiver got each key's records in order, none missing, and
none twice; the order in the topics is that of the warm-up.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import count
from threading import Lock

from benchmarks.case import require_equal
from benchmarks.figure import Figure, Kind
from benchmarks.measure import Samples, alternate
from benchmarks.workbench import Workbench
from de_resources.delivery.bin_pack_orderer import BinLimits, deliver
from de_resources.delivery.fifo_orderer import by_key, one_by_one
from de_resources.delivery.receiver import BulkConnection, BulkReceiver
from de_resources.delivery.records import Answer, Answers, Outcome, OutgoingRecord
from de_resources.delivery.topic_sender import Flavour, TopicSender
from de_resources.kafka import KafkaBroker, TopicSpec
from de_resources.kafka.reader import read_topic
from de_resources.local.partner import Behaviour

KEYS, LANES = 200, 10
SECONDS_PER_RECORD = 0.0025
Places = list[tuple[str, int]]
"""What a receiver got: key and sequence, in the order of arrival."""
_streams = count()


def run(bench: Workbench) -> list[Figure]:
    """Each receiver with all its flavours."""
    bench.start("partner", "kafka")
    return [*_slow_receiver(bench), *_partner(bench), *_broker(bench)]


def records_of(number: int) -> list[OutgoingRecord]:
    """A new stream: key after key in turns, so that every key has as many."""
    stream = f"stream-{next(_streams)}"
    body = '{"position":"2026-01-01T00","values":{"views":100,"visitors":50}}'
    return [OutgoingRecord(stream, n + 1, f"/page/{n % KEYS}", n // KEYS + 1, body) for n in range(number)]


def require_order(what: str, number: int, got: Places) -> None:
    """Raise `ResultsDiffer` unless it is every record once, each key in its order."""
    lines: dict[str, list[int]] = {}
    for key, sequence in got:
        lines.setdefault(key, []).append(sequence)
    lengths = {f"/page/{key}": len(range(key, number, KEYS)) for key in range(min(KEYS, number))}
    require_equal(what, {key: list(range(1, length + 1)) for key, length in lengths.items()}, lines)


def _slow_receiver(bench: Workbench) -> Iterator[Figure]:
    number, got, lock = bench.pick(small=200, full=10_000), Places(), Lock()

    def take(record: OutgoingRecord) -> Answer:
        time.sleep(SECONDS_PER_RECORD)
        with lock:
            got.append((record.key, record.sequence))
        return Answer(Outcome.ACCEPTED)

    def send(line: Callable[..., Iterable[Answers]]) -> None:
        got.clear()
        _drain(line(records_of(number), take))

    samples = alternate(
        {"lanes": partial(send, partial(by_key, lanes=LANES)), "one": partial(send, one_by_one)},
        verify=lambda: require_order("one by one", number, got),
        rounds=bench.pick(small=1, full=3),
    )
    yield _figure(
        f"{number:,} records, 2.5 ms each", f"by key, {LANES} lanes", samples["lanes"], "one by one", samples["one"]
    )


def _partner(bench: Workbench) -> Iterator[Figure]:
    number = bench.pick(small=400, full=10_000)
    Behaviour(per_second=1e6).behave(bench.settings.home / "partner")
    requests: dict[str, int] = {}
    with BulkReceiver().open() as connection:
        limits = connection.limits()
        got = {"bins": Places(), "one": Places()}

        def send(name: str, limits: BinLimits) -> None:
            got[name].clear()
            requests[name] = _drain(deliver(records_of(number), _noting(connection, got[name]), limits))

        def verify() -> None:
            for name, places in got.items():
                require_order(f"the partner, {name}", number, places)

        samples = alternate(
            {"bins": partial(send, "bins", limits), "one": partial(send, "one", BinLimits(1))},
            verify=verify,
            rounds=bench.pick(small=1, full=3),
            watched=bench.servers,
        )
    note = f"requests: {requests['bins']:,} with bins of {limits.records}, {requests['one']:,} one by one"
    what = f"{number:,} records over HTTP"
    yield _figure(what, "bins", samples["bins"], "one record per request", samples["one"], note)


def _noting(connection: BulkConnection, got: Places) -> Callable[[Sequence[OutgoingRecord]], Answers]:
    def send(records: Sequence[OutgoingRecord]) -> Answers:
        answers = connection.send(records)
        accepted = (record for record, answer in answers.items() if answer.outcome is Outcome.ACCEPTED)
        got.extend((record.key, record.sequence) for record in accepted)
        return answers

    return send


def _broker(bench: Workbench) -> Iterator[Figure]:
    number, broker = bench.pick(small=400, full=10_000), KafkaBroker()
    topics: dict[str, str] = {}
    flavours: dict[str, tuple[Flavour, Callable[[TopicSender, list[OutgoingRecord]], Iterable[Answers]]]] = {
        "one by one": (Flavour.INDIVIDUAL, lambda sender, records: one_by_one(records, sender.send)),
        f"by key, {LANES} lanes": (
            Flavour.INDIVIDUAL,
            lambda sender, records: by_key(records, sender.send, lanes=LANES),
        ),
        "one in flight": (Flavour.ONE_IN_FLIGHT, lambda sender, records: sender.pipelined(records)),
        "idempotent": (Flavour.IDEMPOTENT, lambda sender, records: sender.pipelined(records)),
    }

    def new_topics() -> None:
        for name in flavours:
            topics[name] = f"orderers-{next(_streams)}"
        broker.ensure_topics([TopicSpec(topic, partitions=3) for topic in topics.values()])

    def send(name: str) -> None:
        flavour, line = flavours[name]
        with TopicSender(broker.client_config(), topics[name], flavour) as sender:
            _drain(line(sender, records_of(number)))

    def verify() -> None:
        for name, topic in topics.items():
            found = read_topic(broker.client_config(), topic).records
            places = [((each.key or b"").decode(), int(dict(each.headers or ())["sequence"] or 0)) for each in found]
            require_order(f"the broker, {name}", number, places)

    new_topics()
    samples = alternate(
        {name: partial(send, name) for name in flavours},
        verify=verify,
        rounds=bench.pick(small=1, full=3),
        watched=bench.servers,
    )
    for name, each in samples.items():
        yield Figure("orderers", f"{number:,} records into a topic", Kind.RATE, name, each, units=number)


def _drain(answers: Iterable[Answers]) -> int:
    return sum(1 for _ in answers)


def _figure(what: str, ours: str, our_samples: Samples, peer: str, peer_samples: Samples, note: str = "") -> Figure:
    return Figure("orderers", what, Kind.RATIO, ours, our_samples, peer, peer_samples, note=note)
