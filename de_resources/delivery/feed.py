"""A run of a feed: what is new is planned, what waits is sent, and what the receiver says is noted, answer by answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import dagster as dg
from pydantic import Field

from de_resources.delivery.outbox import FeedRow, Outbox, OutboxStanding
from de_resources.delivery.records import Answers, Outcome, OutgoingRecord

AT_ONCE = 20_000
"""Records that are ordered together: so many are in memory."""

Deliver = Callable[[Sequence[OutgoingRecord]], Iterator[Answers]]
"""An orderer that knows its receiver: sends the records, and yields the answers of each request before the next one."""


class FeedDecision(dg.Config):
    """What a person has decided about records that the receiver refuses for good: configuration of the run."""

    release: list[str] = Field(
        default=[], description="Keys whose refused records are given up, so that later ones go on"
    )


@dataclass
class FeedDelivery:
    """What a run did: the records that it planned, the requests that it made, and the records by what became of them."""

    planned: dict[str, int]
    requests: int = 0
    outcomes: Counter[Outcome] = field(default_factory=Counter)
    standing: dict[str, OutboxStanding] = field(default_factory=dict)
    """By slice, how it stands after the run."""

    def metadata(self, slice_: str) -> dict[str, int]:
        """What a materialisation of the slice tells; requests and outcomes are those of the whole run."""
        now = self.standing[slice_]
        return {
            "delivery/planned": self.planned[slice_],
            "delivery/requests": self.requests,
            **{f"delivery/{outcome}": self.outcomes[outcome] for outcome in Outcome},
            "delivery/records": now.planned,
            "delivery/delivered": now.delivered,
            "delivery/undeliverable": now.refused,
            "delivery/held": now.held,
            "delivery/waiting": now.pending,
        }


def run_feed(
    outbox: Outbox,
    slices: Mapping[str, Iterable[FeedRow]],
    deliver: Deliver,
    run: str,
    *,
    release: Sequence[str] = (),
    at_once: int = AT_ONCE,
) -> FeedDelivery:
    """Plan the slices in their order, then send all that waits, what earlier runs have left first.

    `release` are keys whose refused records are given up before. What was answered is noted at once, so that whatever ends the
    run in the middle, the next one goes on behind it. A rerun without new rows makes no request.

    Raises:
        FeedBusy, OutboxLost, PlanRefused, LoadRefused, LoadInterrupted: see `Outbox`.
        What `deliver` raises; all answers before are noted.
    """
    with outbox.alone():
        if release:
            outbox.release(release)
        done = FeedDelivery({slice_: outbox.plan(slice_, rows, run) for slice_, rows in slices.items()})
        while due := outbox.due(at_once):
            for answers in deliver(due):
                outbox.note(answers, run)
                done.requests += 1
                done.outcomes.update(answer.outcome for answer in answers.values())
        done.standing = {slice_: outbox.standing(slice_) for slice_ in slices}
    return done
