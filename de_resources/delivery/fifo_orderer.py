"""Delivery in the order in which records came, to a receiver that takes them one at a time.

Pattern: FIFO Orderer. Three lines in which records wait, from the strictest to the fastest:

| line | a record waits for | order that the receiver sees | cost |
|---|---|---|---|
| `one_by_one` | the answer to the one before it | that of the whole stream | a round trip per record |
| `by_key` | the answer to the one before it of its key | that of each key; keys mix | a round trip per record of the longest key, where there are lanes enough |
| `TopicSender.pipelined` (`de_resources/delivery/topic_sender.py`) | nothing: the broker keeps the order of a partition | that of each partition, and so of each key | a round trip per window of records |

FIFO is not exactly-once: who does not know whether a record arrived sends it again. Receivers tell a copy by the record's identity, or
by its `sequence`, which is not above the last one of its key.

A record that is refused for good is given up, and later ones of its key are held; other keys go on, and in `one_by_one` the
stream does. Source: pattern *FIFO Orderer*; Gregor Hohpe and Bobby Woolf, *Enterprise Integration Patterns*, "Resequencer", for what
a receiver does that cannot rely on it.
"""  # noqa: E501 - a table

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

from de_resources.delivery.bin_pack_orderer import Patience
from de_resources.delivery.errors import DeliveryStalled
from de_resources.delivery.records import Answer, Answers, Outcome, OutgoingRecord, SendOne


def one_by_one(
    records: Sequence[OutgoingRecord], send: SendOne, *, patience: Patience | None = None
) -> Iterator[Answers]:
    """Send each record after the answer to the one before it; yield each answer before the next record is sent.

    Raises:
        DeliveryStalled: a record was rejected in each of the attempts; it and all behind it were not sent.
        Whatever `send` raises; nothing is sent after it.
    """
    patience = patience or Patience()
    held: set[str] = set()
    for record in records:
        if record.key not in held:
            answer = _insisting(record, send, patience)
            if answer.outcome is Outcome.REFUSED:
                held.add(record.key)
            yield {record: answer}


def by_key(
    records: Sequence[OutgoingRecord], send: SendOne, *, lanes: int = 10, patience: Patience | None = None
) -> Iterator[Answers]:
    """Send at most `lanes` records at a time, never two of one key; `send` is called from as many threads.

    The answers that came together are yielded together, before anything more of their keys is sent. Where a record fails,
    nothing new is sent; the answers to what is on its way are awaited and yielded, and then the first failure is raised, as in
    `one_by_one`.
    """
    patience = patience or Patience()
    lines: dict[str, deque[OutgoingRecord]] = {}
    for record in records:
        lines.setdefault(record.key, deque()).append(record)
    ready = deque(lines)
    under_way: dict[Future[Answer], OutgoingRecord] = {}
    failures: list[BaseException] = []
    with ThreadPoolExecutor(lanes, thread_name_prefix="lane") as pool:
        while under_way or (ready and not failures):
            while ready and len(under_way) < lanes and not failures:
                record = lines[ready.popleft()].popleft()
                under_way[pool.submit(_insisting, record, send, patience)] = record
            ended, _ = wait(under_way, return_when=FIRST_COMPLETED)
            failures += [error for each in ended if (error := each.exception())]
            answers = {under_way.pop(each): each for each in list(ended)}
            told = {record: each.result() for record, each in answers.items() if not each.exception()}
            if told:
                yield told
            ready += [r.key for r, answer in told.items() if answer.outcome.is_arrived and lines[r.key]]
    if failures:
        raise failures[0]


def _insisting(record: OutgoingRecord, send: SendOne, patience: Patience) -> Answer:
    """Send the record until it is accepted or refused. Raises `DeliveryStalled`."""
    from tenacity import RetryError, Retrying, retry_if_result, stop_after_attempt

    retrying = Retrying(
        retry=retry_if_result(lambda answer: answer.outcome is Outcome.REJECTED),
        stop=stop_after_attempt(patience.attempts),
        wait=lambda state: patience.seconds(state.attempt_number),
        sleep=patience.wait,
    )
    try:
        return retrying(send, record)
    except RetryError:
        raise DeliveryStalled([record.key], patience.attempts) from None
