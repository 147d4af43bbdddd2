"""Whose turn it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from de_resources.run_queue.places import Place


@dataclass(frozen=True)
class Member:
    """A run of a pipeline that is queued, or runs."""

    run_id: str
    place: Place
    queued_at: float
    """Seconds since 1970."""

    def told(self) -> str:
        """Its partitions and its run, for people."""
        return f"{self.place.told()} (run {self.run_id[:8]})"


def turns(
    queued: Sequence[Member],
    running: Sequence[Member],
    held: Callable[[Place], str | None],
    *,
    now: float,
    settle: float,
) -> Mapping[str, str]:
    """For each queued run of one pipeline what it waits for; nothing (`""`) for at most one of them, whose turn it is.

    A run waits for every run of its pipeline that runs, for earlier partitions that are queued, and for earlier ones that
    failed (`held` says which). Runs of the same partition go as they were queued. The first one waits `settle` seconds for
    an earlier one that was launched at the same moment.
    """
    line = sorted(queued, key=lambda each: (each.place.begin, each.queued_at, each.run_id))
    waits: dict[str, str] = {}
    for before, each in zip([None, *line], line, strict=False):
        waits[each.run_id] = (
            held(each.place)
            or (f"{before.told()}, which is queued before it" if before else "")
            or ("; ".join(f"{other.told()}, which runs" for other in running))
            or ("partitions before it that are launched at the same moment" if now - each.queued_at < settle else "")
        )
    return waits
