"""The simulator lands visits with everyday irregularities: duplicates, late, malformed and missing values, skew.

One process, one day of hourly folders of JSON files with their readiness markers and their ground truth, into an empty folder
each time. Checked: every visit was landed.
"""

import shutil
from datetime import UTC, datetime, timedelta

from benchmarks.case import require_equal
from benchmarks.figure import Figure, Kind
from benchmarks.measure import alternate
from benchmarks.workbench import Workbench
from de_assets.sources.simulator import EVERYDAY, World, hours_between, land_visits

BAR = 50_000
START = datetime(2026, 1, 5, tzinfo=UTC)
WORLD = World(users=10_000, guests=30_000)


def run(bench: Workbench) -> list[Figure]:
    """Visits per second."""
    visits = bench.pick(small=20_000, full=1_000_000)
    hours = hours_between(START, START + timedelta(days=1))
    folder = bench.folder("landing")
    landed: list[int] = []

    def land() -> None:
        made = land_visits(folder, WORLD, hours, total=visits, irregularities=EVERYDAY)
        landed.append(sum(hour.visits for hour in made))

    samples = alternate(
        {"simulator": land},
        verify=lambda: require_equal("the simulator (visits)", visits, *landed),
        before=lambda: shutil.rmtree(folder, ignore_errors=True),
    )
    what = f"{visits:,} visits into files"
    return [Figure("generator", what, Kind.RATE, "simulator", samples["simulator"], bar=BAR, units=visits)]
