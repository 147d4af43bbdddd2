"""The whole platform once: `de run --once`, which is what `make run` does when everything is installed.

From nothing but the fetched jars, in a home of its own each time: services are started, sources seeded, the graph materialised,
everything stopped. Memory is the greatest sum over the command, the services' supervisor and all that they started, of what
each has to itself and its share of what several have in common (PSS), looked at once a second; what only one look found is no
peak, for a child that is about to become another program has its parent's memory and is counted with it (`vfork(2)`). Checked:
it ended well.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from sys import executable

import psutil

from benchmarks.figure import Figure, Kind
from benchmarks.measure import Sample, timed
from benchmarks.workbench import Workbench

BAR_SECONDS, BAR_GIB = 150.0, 4.0
_ROUNDS = 3
_LOOK_SECONDS = 1.0


def run(bench: Workbench) -> list[Figure]:
    """Seconds and memory of a run."""
    samples: list[Sample] = []
    peaks: list[float] = []
    for number in range(bench.pick(small=1, full=_ROUNDS)):
        home = bench.folder(f"run_{number}")
        with peak_of_run(home) as peak:
            samples.append(timed(lambda home=home: _once(bench, home)))  # type: ignore[misc]
        peaks.append(lasting(peak))
        shutil.rmtree(home, ignore_errors=True)
    what = "everything once, two cores"
    return [
        Figure("make_run", what, Kind.SECONDS, "`de run --once`", tuple(samples), bar=BAR_SECONDS),
        Figure("make_run", what, Kind.MEMORY, "all processes", tuple(samples), bar=BAR_GIB, gib=tuple(peaks)),
    ]


def lasting(seen: Sequence[float]) -> float:
    """The greatest amount that two looks in succession found at least."""
    return max(map(min, pairwise(seen)), default=0.0)


def _once(bench: Workbench, home: Path) -> None:
    bench.program(str(Path(executable).with_name("de")), "run", "--once", environment={"DE_HOME": str(home)})


@contextmanager
def peak_of_run(home: Path, every: float = _LOOK_SECONDS) -> Iterator[list[float]]:
    """GiB of what this process and the supervisor of the home start meanwhile, as often as it is looked at."""
    seen, over = [0.0], threading.Event()

    def look() -> None:
        while not over.wait(every):
            seen.append(sum(map(_proportional, at_work(home))) / 2**20)

    watcher = threading.Thread(target=look, daemon=True)
    watcher.start()
    try:
        yield seen
    finally:
        over.set()
        watcher.join()


def at_work(home: Path) -> set[psutil.Process]:
    """Each once: the services outlive the command that starts them, as the supervisor's children and those of who adopts it."""
    return {*psutil.Process().children(recursive=True), *_supervised(home)}


def _supervised(home: Path) -> list[psutil.Process]:
    with suppress(OSError, ValueError, psutil.Error):
        supervisor = psutil.Process(int((home / "run" / "supervisord.pid").read_text()))
        return [supervisor, *supervisor.children(recursive=True)]
    return []


def _proportional(process: psutil.Process) -> int:
    """Resident KiB of a process, of shared pages its share: `proc(5)`, smaps_rollup. Nothing of one that has ended."""
    with suppress(OSError):
        for line in Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1])
    return 0
