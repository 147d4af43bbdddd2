"""Eight processes (two at the small size) overwrite partitions of their own in one table at once: how fast, and is any lost?

Each process is a run's worker as far as writing goes: Python, connected to the one warm Spark Connect server on which the
platform's runs work; eight engines would be more than a small machine holds. Ours commits as a run does: under the table's
lock (shared, because inside one engine Delta arbitrates), with slice guard, stamp and confirmation in the log. The peers are
Delta's plain `replaceWhere` on the same server and delta-rs without an engine, each again after a conflict. Rounds begin when
all processes stand ready, and end with the last commit of the last one. Every call writes partitions that were not there. A
commit is lost when a process believes to have made it and its rows are not in the table at the end: every row is compared with
what the processes said. Ours may lose none. The notes tell of the peers' losses and of how often they began again.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any

from deltalake import DeltaTable, Schema
from deltalake.schema import Field as DeltaField
from deltalake.schema import PrimitiveType

from benchmarks.case import require_equal
from benchmarks.figure import Figure, Kind
from benchmarks.measure import Samples, alternate
from benchmarks.programs.slot_writer import ROWS
from benchmarks.workbench import PROJECT, Workbench

OURS, PLAIN, RS = "ours", "plain", "delta-rs"
NAMES = {OURS: "with lock", PLAIN: "plain `replaceWhere`", RS: "delta-rs"}


@dataclass
class Writers:
    """Processes that wait for work, the tables that they write to, and what they believe to have committed."""

    processes: Sequence[subprocess.Popen[str]]
    tables: Mapping[str, str]
    commits: int
    believed: dict[str, list[str]] = field(default_factory=dict)
    again: Counter[str] = field(default_factory=Counter)
    _rounds: Iterator[int] = field(default_factory=count)

    def ready(self) -> None:
        """Wait for all of them."""
        for process in self.processes:
            require_equal("the writers", "ready", _answer(process))

    def write(self, way: str) -> None:
        """All begin, and all come to their end."""
        number = next(self._rounds)
        for process in self.processes:
            assert process.stdin is not None
            print(way, self.tables[way], number, self.commits, file=process.stdin, flush=True)
        for process in self.processes:
            told = _answer(process)
            self.believed.setdefault(way, []).extend(told["slots"])
            self.again[way] += told["again"]

    def lost(self, way: str) -> int:
        """How many commits are not in the table with exactly their rows."""
        return lost_commits(self.believed.get(way, []), rows_of(self.tables[way]))

    def verify(self) -> None:
        """Raise `ResultsDiffer` where a commit of ours is lost."""
        require_equal("the writers (commits lost)", 0, self.lost(OURS))


def lost_commits(believed: Sequence[str], found: Mapping[str, Counter[int]]) -> int:
    """How many slots do not hold each of their numbers once. A slot that nobody believes in is no commit of anybody's."""
    whole = Counter(range(ROWS))
    strangers = len(found.keys() - set(believed))
    return sum(found.get(slot) != whole for slot in believed) + strangers


def rows_of(uri: str) -> dict[str, Counter[int]]:
    """The numbers of each slot, from the table's rows."""
    table = DeltaTable(uri).to_pyarrow_table()
    found: dict[str, Counter[int]] = {}
    for slot, number in zip(table["slot"].to_pylist(), table["number"].to_pylist(), strict=True):
        found.setdefault(slot, Counter())[number] += 1
    return found


def run(bench: Workbench) -> list[Figure]:
    """What eight at once bring about in a second."""
    commits = 3
    bench.connect_server()
    tables = {way: str(bench.folder("slots") / way.replace("-", "_")) for way in NAMES}
    schema = Schema([DeltaField("slot", PrimitiveType("string")), DeltaField("number", PrimitiveType("long"))])
    for uri in tables.values():
        DeltaTable.create(uri, schema, partition_by=["slot"])
    with _writers(bench.pick(small=2, full=8)) as processes:
        writers = Writers(processes, tables, commits)
        writers.ready()
        samples = alternate(
            {way: partial(writers.write, way) for way in NAMES},
            verify=writers.verify,
            rounds=bench.pick(small=2, full=3),
            watched=bench.servers,
        )
        writers.verify()
        return figures(writers, samples)


def figures(writers: Writers, samples: Mapping[str, Samples]) -> list[Figure]:
    """Beside each peer, and commits per second of all three."""
    many = len(writers.processes)
    units = many * writers.commits
    what = f"{many} processes, {writers.commits} commits each"
    told = {
        way: f"{writers.lost(way)} of {len(writers.believed[way])} commits lost, begun again {writers.again[way]} times"
        for way in NAMES
    }
    beside = [
        Figure(
            "concurrent_runner", what, Kind.RATIO, NAMES[OURS], samples[OURS], NAMES[way], samples[way],
            note=f"{told[OURS]}; peer: {told[way]}",
        )
        for way in (PLAIN, RS)
    ]  # fmt: skip
    rates = [
        Figure("concurrent_runner", f"commits, {what}", Kind.RATE, name, samples[way], units=units)
        for way, name in NAMES.items()
    ]
    return beside + rates


@contextmanager
def _writers(many: int) -> Iterator[Sequence[subprocess.Popen[str]]]:
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.programs.slot_writer"]
    processes = [
        subprocess.Popen([*command, str(number)], cwd=PROJECT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for number in range(many)
    ]
    try:
        yield processes
    finally:
        for process in processes:
            assert process.stdin is not None
            process.stdin.close()
        for process in processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(60)
            process.kill()


def _answer(process: subprocess.Popen[str]) -> Any:
    """The next line of JSON; what libraries print besides is passed over. Raises where the process has ended."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(("{", '"')):
            return json.loads(line)
    raise RuntimeError(f"a writer ended with {process.wait(60)} before it answered; read what it printed above")
