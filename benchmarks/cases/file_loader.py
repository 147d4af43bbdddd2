"""Landed visits of ten days, 240 hours, into the two tables of the file loader, beside plain Spark doing the same.

Ours is one run over all hours: readiness markers, dead letters with reason and place, slice guards, rule counters, stamped
commits, rows per hour. The peer is a script that reads the folder, parses, keeps the frame, and writes the same two tables,
partitioned by hour. Both are processes of their own on the same Spark Connect server and are timed whole. Memory is the
greatest resident size of the server while each of them worked. Measured once, after both have done the first day to warm
the engine. Equal: rows per hour in both tables.
"""

from collections import Counter
from datetime import timedelta
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
    landed, peaks = str(bench.settings.landing / "visits"), []

    def measured(*program: str, **variables: str) -> Samples:
        reset_peaks(bench.servers)
        sample = timed(lambda: bench.program("-m", *program, environment=variables), bench.servers)
        peaks.append(peak_gib(bench.servers))
        return (sample,)

    first_day = {"DE_CALENDAR": FIRST_DAY, "LAKE_ROOT": str(bench.folder("warm_lake"))}
    measured("benchmarks.programs.load_hours", **{**environment, **first_day})
    measured(
        "benchmarks.programs.split_visits",
        f"{landed}/date={FIRST_DAY[:10]}",
        str(bench.folder("warm_split")),
        SPARK_REMOTE=remote,
    )
    peaks.clear()
    loader = measured("benchmarks.programs.load_hours", **environment)
    script = measured("benchmarks.programs.split_visits", landed, by_hand, SPARK_REMOTE=remote)
    for asset, name in TABLES.items():
        ours, theirs = (DeltaTable(uri) for uri in (f"{environment['LAKE_ROOT']}/{asset}", f"{by_hand}/{name}"))
        require_equal(f"{asset} (rows per hour)", rows_per_hour(ours), rows_per_hour(theirs))

    what = f"{visits:,} visits in {len(hours)} hours"
    note = "the server's greatest resident size: {:.1f} and {:.1f} GiB".format(*peaks)
    return [
        Figure("file_loader", what, Kind.RATIO, "file loader", loader, "script", script, BAR, note=note),
        Figure("file_loader", what, Kind.RATE, "file loader", loader, units=visits),
    ]


def rows_per_hour(table: DeltaTable) -> Counter[str]:
    """Rows by the hour that received them, from the log."""
    counts: Counter[str] = Counter()
    for action in pa.table(table.get_add_actions(flatten=True)).to_pylist():
        counts[str(action["partition.landing_hour"])] += action["num_records"]
    return counts


def reset_peaks(pids: list[int]) -> None:
    """Let the kernel measure the greatest resident size anew: `proc(5)`, clear_refs."""
    for pid in pids:
        Path(f"/proc/{pid}/clear_refs").write_text("5")


def peak_gib(pids: list[int]) -> float:
    """Greatest resident size since `reset_peaks`, in GiB."""
    status = "\n".join(Path(f"/proc/{pid}/status").read_text() for pid in pids)
    return sum(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) / 2**20
