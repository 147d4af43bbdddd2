"""What a year of hourly partitions costs beside a day of them: whose rows a run has written or judged, and a sensor's tick.

A run over a range says how many rows lie in each partition and which break a rule. Ours is that for the 8,784 hours of a year:
rows by the table's log, with a file for each hour, and broken rules by the query of the contract's checks. The peer is the same
for the 24 hours of a day. Both queries read as many rows in as many files, for how many files an engine opens is not asked
here. The figure is how many seconds more a year takes. The tick is the real sensor's over a year of landed hours that were all
read, with an instance on the disk; a process of its own prepares them. Equal: the rows of every hour, and what is requested.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from benchmarks import data
from benchmarks.case import require_equal
from benchmarks.figure import Figure, Kind
from benchmarks.measure import Sample, alternate
from benchmarks.workbench import Workbench
from de_assets.calendar import Calendar
from de_checks.violations import count_by_key
from de_resources.contract import Contract
from de_resources.delta.log import TableLog
from de_resources.delta.metadata import stored_per_key
from de_resources.delta.slices import make_slice
from de_resources.delta.table import Written

MORE_SECONDS, TICK_SECONDS = 5.0, 0.3
START = datetime(2024, 1, 1, tzinfo=UTC)
YEAR, DAY = "a year", "a day"
Rows = Mapping[str | None, int | None]
_WRITTEN = Written(version=0, commit=None, rows=None, violations=None, seconds=0)


@dataclass(frozen=True)
class Range:
    """The hours of some days: a table with a file for each, and the same rows in few files."""

    bench: Workbench
    name: str
    days: int
    rows: int
    contract: Contract

    @cached_property
    def keys(self) -> Sequence[str]:
        """The hours' keys."""
        return _calendar(self.days).hourly.get_partition_keys()

    @cached_property
    def frame(self) -> DataFrame:
        """The rows in few files."""
        return data.stage(self.bench, self.name, days=self.days, rows_per_day=self.rows // self.days)

    def write(self) -> None:
        """The table."""
        hours = self.frame.select(F.date_trunc("hour", "event_time").alias("hour"), "user_id")
        hours.write.format("delta").partitionBy("hour").save(self._uri)

    def attributed(self) -> tuple[Rows, Rows]:
        """Whose rows they are, from the keys on: as the log says, and as the query finds."""
        hours = _calendar(self.days).hourly
        stored_in, found_in = (make_slice(self.keys, hours, column) for column in ("hour", "event_time"))
        log = TableLog.open(self._uri)
        assert log is not None
        stored = stored_per_key(log, stored_in, _WRITTEN)
        found = count_by_key(self.frame, found_in, self.contract)
        return {key: each.rows for key, each in stored.items()}, {key: each.rows for key, each in found.items()}

    def verify(self) -> None:
        """Every hour has as many rows as were made for it."""
        made = dict.fromkeys(self.keys, self.rows // len(self.keys))
        require_equal(f"the hours of {self.name} (rows)", made, *self.attributed())

    @property
    def _uri(self) -> str:
        return str(self.bench.folder(f"{self.name}_by_hour"))


def run(bench: Workbench) -> list[Figure]:
    """Seconds that a year takes longer than a day, and seconds of a tick over a year."""
    days = bench.pick(small=2, full=366)
    return [_tick(bench, days), _attribution(bench, days, rows_per_hour=228)]


def _attribution(bench: Workbench, days: int, rows_per_hour: int) -> Figure:
    rows, contract = days * 24 * rows_per_hour, Contract.of(data.PageViews)
    ranges = {name: Range(bench, name.replace(" ", "_"), n, rows, contract) for name, n in ((YEAR, days), (DAY, 1))}
    for each in ranges.values():
        each.write()
    what = f"{24 * days:,} hours in one run, {rows:,} rows"

    def verify() -> None:
        for each in ranges.values():
            each.verify()

    samples = alternate(
        {name: each.attributed for name, each in ranges.items()},
        verify=verify,
        rounds=bench.pick(small=2, full=7),
        warm_ups=2,
    )
    return Figure("year_of_hours", what, Kind.EXTRA, YEAR, samples[YEAR], DAY, samples[DAY], MORE_SECONDS)


def _tick(bench: Workbench, days: int) -> Figure:
    home = str(bench.folder("tick"))
    environment = bench.worker_environment("tick", DE_CALENDAR=str(_calendar(days)), DE_HOME=home)
    ticks = str(bench.pick(small=2, full=25))
    said = bench.program("-m", "benchmarks.programs.tick_over_hours", ticks, environment=environment)
    samples = tuple(Sample(**each) for each in json.loads(said.splitlines()[-1]))
    what = f"a tick over {24 * days:,} landed hours"
    return Figure("year_of_hours", what, Kind.SECONDS, "`visits_hour_landed`", samples, bar=TICK_SECONDS)


def _calendar(days: int) -> Calendar:
    return Calendar(START, START + timedelta(days=days))
