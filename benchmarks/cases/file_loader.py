"""Landed visits of ten days, 240 hours, into the two tables of the file loader, beside plain Spark doing the same.

Ours is one run over all hours: readiness markers, dead letters with reason and place, slice guards, rule counters, stamped
commits, rows per hour. The peer is a script that reads the folder, parses, keeps the frame, and writes the same two tables,
partitioned by hour. Both are processes of their own on the same Spark Connect server and are timed whole. Memory is the
greatest resident size of the server while each of them worked. Both have done the first day before, to warm the engine; every
round starts with no tables. Equal: rows per hour in both tables.
"""

import shutil
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable

from benchmarks.case import require_equal
from benchmarks.figure import Figure, Kind
from benchmarks.measure import Samples, timed
from benchmarks.workbench import Workbench
from de_assets.calendar import Calendar
from de_assets.sources.simulator import EVERYDAY, World, hours_between, land_visits

BAR = 1.2
LOADER, SCRIPT = "file loader", "script"
ROUNDS, AT_MOST = 5, 9
"""Five are as few as give an interval: one takes several minutes."""
CALENDAR = "2026-01-05T00/2026-01-15T00"
FIRST_DAY = "2026-01-05T00/2026-01-06T00"
TABLES = {"bronze/visits": "valid", "bronze/visits_dead_letter": "dead"}


def run(bench: Workbench) -> list[Figure]:
    """What the loader costs over a copy by hand, and how many visits it takes in a second."""
    visits = bench.pick(small=24_000, full=10_000_000)
    calendar = Calendar.parse(CALENDAR)
    assert calendar.end is not None
    hours = hours_between(calendar.start, calendar.end)
    world = World(epoch=calendar.start - timedelta(days=180))
    land_visits(bench.settings.landing, world, hours, total=visits, irregularities=EVERYDAY)
    remote = bench.connect_server()
    environment = bench.worker_environment("file_loader", DE_CALENDAR=CALENDAR)
    by_hand = str(bench.folder("split"))
    landed = str(bench.settings.landing / "visits")
    peaks: dict[str, float] = {}

    def measured(name: str, *program: str, **variables: str) -> None:
        reset_peaks(bench.servers)
        bench.program("-m", *program, environment=variables)
        peaks[name] = max(peak_gib(bench.servers), peaks.get(name, 0.0))

    first_day = {"DE_CALENDAR": FIRST_DAY, "LAKE_ROOT": str(bench.folder("warm_lake"))}
    measured("", "benchmarks.programs.load_hours", **{**environment, **first_day})
    measured(
        "",
        "benchmarks.programs.split_visits",
        f"{landed}/date={FIRST_DAY[:10]}",
        str(bench.folder("warm_split")),
        SPARK_REMOTE=remote,
    )

    def clear() -> None:
        for folder in (environment["LAKE_ROOT"], by_hand):
            shutil.rmtree(folder, ignore_errors=True)

    samples: dict[str, Samples] = {LOADER: (), SCRIPT: ()}
    what = f"{visits:,} visits in {len(hours)} hours"
    for number in range(bench.pick(small=1, full=AT_MOST)):
        if number >= ROUNDS and _beside_script(what, samples).is_decided:
            break
        clear()
        loader = partial(measured, LOADER, "benchmarks.programs.load_hours", **environment)
        script = partial(measured, SCRIPT, "benchmarks.programs.split_visits", landed, by_hand, SPARK_REMOTE=remote)
        for name, work in ((LOADER, loader), (SCRIPT, script)):
            samples[name] = (*samples[name], timed(work, bench.servers))
        for asset, name in TABLES.items():
            ours, theirs = (DeltaTable(uri) for uri in (f"{environment['LAKE_ROOT']}/{asset}", f"{by_hand}/{name}"))
            require_equal(f"{asset} (rows per hour)", rows_per_hour(ours), rows_per_hour(theirs))

    note = f"the server's greatest resident size: {peaks[LOADER]:.1f} and {peaks[SCRIPT]:.1f} GiB"
    return [
        replace(_beside_script(what, samples), note=note),
        Figure("file_loader", what, Kind.RATE, LOADER, samples[LOADER], units=visits),
    ]


def _beside_script(what: str, samples: Mapping[str, Samples]) -> Figure:
    return Figure("file_loader", what, Kind.RATIO, LOADER, samples[LOADER], SCRIPT, samples[SCRIPT], BAR)


def rows_per_hour(table: DeltaTable) -> Counter[str]:
    """Rows by the hour that received them, from the log."""
    counts: Counter[str] = Counter()
    for action in pa.table(table.get_add_actions(flatten=True)).to_pylist():
        counts[str(action["partition.landing_hour"])] += action["num_records"]
    return counts


def reset_peaks(pids: list[int]) -> None:
    """Let the kernel measure the greatest resident size again: `proc(5)`, clear_refs."""
    for pid in pids:
        Path(f"/proc/{pid}/clear_refs").write_text("5")


def peak_gib(pids: list[int]) -> float:
    """Greatest resident size since `reset_peaks`, in GiB."""
    status = "\n".join(Path(f"/proc/{pid}/status").read_text() for pid in pids)
    return sum(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) / 2**20
