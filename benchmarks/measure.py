"""Measuring contenders side by side: a warm-up, proof that they do the same, then turns A B A B.

Wall seconds are those of the call. CPU seconds are those of this process and of all it started (a JVM, a child program),
and of processes named by the caller, such as a server that somebody else supervises.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from statistics import median

import psutil

Work = Callable[[], object]


@dataclass(frozen=True)
class Sample:
    """One timed call, in seconds; without `cpu` where only its duration is known."""

    wall: float
    cpu: float = 0.0


Samples = tuple[Sample, ...]


def middle(samples: Samples) -> float:
    """The median of the wall seconds."""
    return median(sample.wall for sample in samples)


def never(_: Mapping[str, Samples]) -> bool:
    """More rounds would tell more."""
    return False


def alternate(
    contenders: Mapping[str, Work],
    *,
    verify: Work,
    rounds: int = 3,
    at_most: int = 0,
    enough: Callable[[Mapping[str, Samples]], bool] = never,
    before: Work = lambda: None,
    watched: Sequence[int] = (),
    warm_ups: int = 1,
) -> dict[str, Samples]:
    """Time all contenders in turns, `rounds` times, after untimed rounds whose results `verify` has to accept.

    With `at_most`, go on until what was measured is `enough` for a verdict, or there are that many rounds.
    `before` puts things back before each call and is not timed. `watched` are process ids whose CPU time counts too.
    Work of a second or two inside an engine needs several `warm_ups`, or the rounds tell how it compiles its code.
    """
    for _ in range(warm_ups):
        for work in contenders.values():
            before()
            work()
    verify()
    samples: dict[str, Samples] = dict.fromkeys(contenders, ())
    for number in range(max(rounds, at_most)):
        if number >= rounds and enough(samples):
            break
        for name, work in contenders.items():
            before()
            samples[name] = (*samples[name], timed(work, watched))
    return samples


def timed(work: Work, watched: Sequence[int] = ()) -> Sample:
    """Time one call."""
    cpu, wall = _cpu_seconds(watched), time.perf_counter()
    work()
    return Sample(time.perf_counter() - wall, _cpu_seconds(watched) - cpu)


class Meter:
    """How much of the machine others use, from now on: what is busy on all cores and is neither ours nor watched.

    The load average cannot tell, because measuring itself makes load.
    """

    def __init__(self, watched: Sequence[int] = ()) -> None:
        self._started, self._busy, self._ours = time.perf_counter(), _busy_seconds(), _cpu_seconds(watched)

    def others(self, watched: Sequence[int] = ()) -> float:
        """Share of all cores, 0 to 1; `watched` may have grown by servers that were started meanwhile."""
        busy, ours = _busy_seconds() - self._busy, _cpu_seconds(watched) - self._ours
        whole = (time.perf_counter() - self._started) * (psutil.cpu_count() or 1)
        return min(max(busy - ours, 0.0) / whole, 1.0)


def _busy_seconds() -> float:
    """CPU time of the machine that was not idle; time that a hypervisor gave to others counts as busy."""
    times = psutil.cpu_times()
    # Guests' time is in `user` and `nice` already.
    uncounted = ("idle", "iowait", "guest", "guest_nice")
    return float(sum(times) - sum(getattr(times, name, 0.0) for name in uncounted))


def _cpu_seconds(watched: Sequence[int]) -> float:
    """CPU time so far. A child that ended is in its parent's `children_…` figures."""
    spent = 0.0
    for process in _families(watched):
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            spent += times.user + times.system + times.children_user + times.children_system
    return spent


def _families(watched: Sequence[int]) -> Iterator[psutil.Process]:
    for root in (psutil.Process(), *map(psutil.Process, watched)):
        yield root
        yield from root.children(recursive=True)
