"""What lands beside what `de run` serves is in gold without a person: the calendar grows, and is left open in the end.

A long proof (`make soak`): three logs land beside webserver and daemon, cut at hours that the seed draws, in the middle of
days. Silver is compared line by line and the cube day by day with what plain Python makes of the lines. A round took 24 minutes
where eleven other programs worked on the same two cores.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest
from deltalake import DeltaTable
from simulated_home import STEP_SECONDS, Home, View, expected, living_home, visited, written
from web_ui import until

from de_assets.calendar import Calendar
from de_resources.settings import Settings

pytestmark = [pytest.mark.ui, pytest.mark.faults, pytest.mark.timeout(3600)]

DAYS, LOGS, VISITORS = 3, 4, 5
HOUR = timedelta(hours=1)


def test_logs_that_land_beside_what_is_served_reach_gold(soak_seed: int, tmp_path: Path) -> None:
    random_ = random.Random(soak_seed)  # noqa: S311 - a world, not a secret
    # An open calendar goes on until now: the hours from these days to now are missing and keep nobody waiting.
    start = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=DAYS + 1)
    views = [replace(v, address=f"192.0.2.{random_.randrange(VISITORS)}") for v in visited(random_, DAYS, start)]
    pieces = cut(views, random_)
    logs = written(tmp_path, pieces)

    with living_home(tmp_path / "home") as home:
        home.de("run", "--once", "--without-services", "--log", str(logs[0]))
        with home.served() as served:
            for number, log in enumerate(logs[1:], 2):
                home.de("land", str(log), *(["--follow"] if number == LOGS else []))
                landed = [view for piece in pieces[:number] for view in piece]
                home.takes_in(landed, served)
                until(
                    lambda: cube(home) == counted(landed) and not home.works(),  # noqa: B023 - called at once
                    STEP_SECONDS,
                    lambda: f"the cube has {cube(home)} and not {counted(landed)}; {served.output()}",  # noqa: B023
                )
            assert served.process.poll() is None

        assert home.silver() == expected(views)
        assert cube(home) == counted(views)
        assert Calendar.load(Settings.from_environment(home.environment)) == Calendar(hour_of(views[0]), None)


def cut(views: Sequence[View], random_: random.Random) -> list[list[View]]:
    """The views as logs that follow each other: each ends in one hour with views, and the next begins in another one."""
    busy = sorted({hour_of(view) for view in views})
    inside = [later for earlier, later in pairwise(busy) if later - earlier == HOUR and later.hour not in (0, 1)]
    bounds = [busy[0], *sorted(random_.sample(inside, LOGS - 1)), busy[-1] + HOUR]
    return [[view for view in views if first <= view.time < last] for first, last in pairwise(bounds)]


def hour_of(view: View) -> datetime:
    return view.time.replace(minute=0, second=0, microsecond=0)


def counted(views: Sequence[View]) -> Mapping[date, tuple[int, int]]:
    """Views and visitors by day."""
    days: defaultdict[date, list[str]] = defaultdict(list)
    for view in views:
        days[view.time.date()].append(view.address)
    return {day: (len(addresses), len(set(addresses))) for day, addresses in days.items()}


def cube(home: Home) -> Mapping[date, tuple[int, int]]:
    """What the cube says of each day as a whole."""
    rows = DeltaTable(str(home.table("gold/visits_cube_daily"))).to_pyarrow_table().to_pylist()
    return {row["event_date"]: (row["visits"], row["users"]) for row in rows if row["grouping"] == 7}
