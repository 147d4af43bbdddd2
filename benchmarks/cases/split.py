"""Landed visits are split into valid ones and dead letters, by one reading and by two.

Ours is the file loader's split as its asset does it, without the run around: the lines of a day are read and parsed once, the
engine keeps the rows, and both tables are overwritten from them (reason, place and number of each dead letter; slice guard,
rule counters, stamped commits). The peer is the obvious PySpark by hand: read, parse, keep what is good, write; read, parse,
keep what is bad, write. Both are on one engine in this process, read the same files and write tables partitioned by hour; the
peer has neither reasons nor counters. For information, its way to the valid rows alone: the part of its time that whoever
writes both tables has to take. Equal: rows per hour in both tables, and that no landed line is lost. The note says how many
times the size of the source the engine read from files while it worked, everything else that it reads included.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import dagster as dg
import psutil
from deltalake import DeltaTable
from pyspark.sql import Column
from pyspark.sql import functions as F

from benchmarks.case import require_equal
from benchmarks.cases.file_loader import rows_per_hour
from benchmarks.figure import Figure, Kind
from benchmarks.measure import Samples, alternate
from benchmarks.programs.split_visits import parse
from benchmarks.workbench import Workbench
from de_assets.bronze.visits import dead_letters, parsed_lines, understood
from de_assets.contracts.visits import BronzeVisits, VisitsDeadLetter
from de_assets.sources.landing_zone import LandingZone
from de_assets.sources.simulator import EVERYDAY, World, hours_between, land_visits
from de_resources.contract import Contract
from de_resources.delta.slices import make_slice
from de_resources.delta.write import overwrite

START = datetime(2026, 1, 5, tzinfo=UTC)
HOURS = dg.HourlyPartitionsDefinition("2026-01-05-00:00", end_date="2026-01-06-00:00")
OURS, PEER, ALONE = "split", "filter twice", "valid rows alone"
TABLES = {"dead": VisitsDeadLetter, "valid": BronzeVisits}
READINGS = {OURS: 1, PEER: 2}
"""How often each is to read the source."""
BAR = 0.6


@dataclass
class Split:
    """One day of landed visits, and both ways to split them."""

    bench: Workbench
    hours: Sequence[datetime]
    lines: int = 0
    """How many were landed."""
    read: dict[str, float] = field(default_factory=dict)
    """How often, by the bytes that the engine read, at the last call of each."""

    @property
    def landed(self) -> Path:
        """The folder into which visits are landed."""
        return self.bench.folder("split_landing")

    def uri(self, who: str, table: str) -> str:
        """Where one of the two writes one of the tables."""
        return str(self.bench.folder("split") / who / table)

    def once(self) -> None:
        """What the asset does."""
        session = self.bench.spark
        landing = LandingZone(root=str(self.landed))
        parsed = parsed_lines(landing.visit_lines(session, self.hours).lines, None).persist()
        slice_ = make_slice(HOURS.get_partition_keys(), HOURS, "landing_hour")
        try:
            for name, frame in (("dead", dead_letters(parsed)), ("valid", understood(parsed))):
                table = self.bench.table(
                    f"split_{name}", contract=Contract.of(TABLES[name]), partitioned_by=("landing_hour",)
                )
                stamp = self.bench.stamp(table)
                overwrite.replace(session, table, frame, stamp, slice_=slice_, pre_clustered=True)
        finally:
            parsed.unpersist()

    def twice(self) -> None:
        """What is written by hand."""
        self._by_hand("dead", F.col("is_dead"))
        self.valid()

    def valid(self) -> None:
        """The larger half of it."""
        self._by_hand("valid", ~F.col("is_dead"))

    def _by_hand(self, name: str, chosen: Column) -> None:
        lines = self.bench.spark.read.option("recursiveFileLookup", True).text(str(self.landed / "visits"))
        rows = parse(lines).where(chosen).drop("is_dead")
        rows.write.format("delta").mode("overwrite").partitionBy("landing_hour").save(self.uri(PEER, name))

    def counted(self, who: str) -> None:
        """One call, and what it read."""
        before = bytes_read()
        {OURS: self.once, PEER: self.twice}[who]()
        self.read[who] = (bytes_read() - before) / size_of(self.landed / "visits")

    def verify(self) -> None:
        """Raise `ResultsDiffer` unless both tables have the same rows per hour, and all that were landed between them."""
        told = {}
        for name in TABLES:
            ours, theirs = (
                rows_per_hour(DeltaTable(uri)) for uri in (self.bench.table(f"split_{name}").uri, self.uri(PEER, name))
            )
            require_equal(f"{name} (rows per hour)", ours, theirs)
            told[name] = sum(ours.values())
        require_equal("the split (lines)", self.lines, sum(told.values()))
        require_equal("the split (some lines are bad)", True, told["dead"] > 0)
        require_readings(self.read)


def run(bench: Workbench) -> list[Figure]:
    """The price of a second reading, against that of a better dead letter."""
    visits = bench.pick(small=20_000, full=1_000_000)
    hours = hours_between(START, START + timedelta(days=1))
    world = World(epoch=START - timedelta(days=180))
    split = Split(bench, hours)
    landed = land_visits(split.landed, world, hours, total=visits, irregularities=EVERYDAY)
    split.lines = sum(hour.lines for hour in landed)
    what = f"{visits:,} visits of a day"
    samples = alternate(
        {**{name: partial(split.counted, name) for name in READINGS}, ALONE: split.valid},
        verify=split.verify,
        rounds=bench.pick(small=2, full=5),
        at_most=bench.pick(small=2, full=9),
        enough=lambda taken: _figure(what, taken, split.read).is_decided,
        warm_ups=2,
    )
    least = Figure("split", what, Kind.RATIO, ALONE, samples[ALONE], PEER, samples[PEER])
    return [_figure(what, samples, split.read), least]


def _figure(what: str, samples: Mapping[str, Samples], read: Mapping[str, float]) -> Figure:
    note = f"the engine read {read[OURS]:.1f} and {read[PEER]:.1f} times the size of the source"
    return Figure("split", what, Kind.RATIO, OURS, samples[OURS], PEER, samples[PEER], BAR, note=note)


def require_readings(read: Mapping[str, float]) -> None:
    """Raise `ResultsDiffer` unless each has read the source as often as it is to.

    Whoever reads all of it once more is a whole over it; tables' logs, and what the engine put aside, are less than that.
    """
    require_equal("the split (readings)", READINGS, {name: int(times) for name, times in read.items()})


def bytes_read() -> int:
    """What the engines of this process have read from files so far: `proc(5)`, io."""
    engines = (child for child in psutil.Process().children(recursive=True) if child.name() == "java")
    return sum(int(engine.io_counters().read_chars) for engine in engines)


def size_of(folder: Path) -> int:
    """Bytes of the files with lines."""
    return sum(file.stat().st_size for file in _files(folder))


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and not path.name.startswith(("_", "."))]
