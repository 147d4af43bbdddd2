"""Day after day under the real daemon, which dies twice: what lands is in gold without a person, and silver is its lines.

A long proof (`make soak`): a round is a month in steps of several days, drawn from the seed. Logs overlap, hours are quiet, one
line is none. A round of six steps took twenty minutes on a busy machine of four cores; nothing waits for time, only for what
has to become true.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import dagster as dg
import pytest
from deltalake import DeltaTable
from web_ui import PROJECT, DagsterProcess, until

from de_resources.local import LocalServices
from de_resources.settings import Settings

pytestmark = [pytest.mark.ui, pytest.mark.faults, pytest.mark.timeout(3600)]

START = datetime(2024, 3, 1, tzinfo=UTC)
DAYS, STEPS, KILLS = 30, 4, 2
AGENT = "Mozilla/5.0 (X11; Linux x86_64; rv:125.0) Gecko/20100101 Firefox/125.0"
STEP_SECONDS = 600.0
SILVER, GOLD = dg.AssetKey(["silver", "visits"]), dg.AssetKey(["gold", "visits_cube_daily"])


@dataclass(frozen=True)
class View:
    """One page view; its page tells it from all others."""

    time: datetime
    page: str

    @property
    def line(self) -> str:
        when = self.time.strftime("%d/%b/%Y:%H:%M:%S +0000")
        return f'192.0.2.7 - - [{when}] "GET {self.page} HTTP/1.1" 200 512 "-" "{AGENT}"'


def month(random_: random.Random) -> list[View]:
    """Twenty to forty views an hour, in their order, and every third hour quiet, but no first and last one of a day."""
    views: list[View] = []
    for hour in range(24 * DAYS):
        quiet = hour % 24 not in (0, 23) and random_.random() < 1 / 3
        for _ in range(0 if quiet else random_.randint(20, 40)):
            moment = START + timedelta(hours=hour, seconds=random_.randrange(3600))
            views.append(View(moment, f"/page/{len(views)}"))
    return sorted(views, key=lambda view: view.time)


def steps(views: Sequence[View], random_: random.Random) -> list[list[View]]:
    """The month in pieces of whole days, each of which begins with the last lines of the one before."""
    days = sorted(random_.sample(range(1, DAYS), STEPS - 1))
    bounds = [START + timedelta(days=day) for day in (0, *days, DAYS)]
    pieces = []
    for first, last in pairwise(bounds):
        of_piece = [view for view in views if first <= view.time < last]
        before = [view for view in views if view.time < first][-random_.randint(1, 5) :]
        pieces.append([*before, *of_piece])
    return pieces


@dataclass
class Home:
    """A platform's home, its engine, and what was landed in it so far."""

    environment: dict[str, str]

    def de(self, *arguments: str) -> None:
        command = [str(Path(sys.executable).with_name("de")), *arguments]
        done = subprocess.run(command, cwd=PROJECT, env=self.environment, capture_output=True, text=True, timeout=540)
        assert done.returncode == 0, done.stdout + done.stderr

    def daemon(self) -> DagsterProcess:
        return DagsterProcess(["dagster._daemon", "run", "-w", str(PROJECT / "workspace.yaml")], self.environment)

    def silver(self) -> Counter[tuple[datetime, str]]:
        table = DeltaTable(f"{self.environment['DE_HOME']}/lake/silver/visits")
        rows = table.to_pyarrow_table(columns=["event_time", "page"]).to_pylist()
        return Counter((row["event_time"].astimezone(UTC), row["page"]) for row in rows)

    def works(self) -> bool:
        """Whether some run has begun, or waits, and has not ended."""
        with dg.DagsterInstance.from_config(self.environment["DAGSTER_HOME"]) as instance:
            return instance.get_runs_count(dg.RunsFilter(statuses=UNFINISHED)) > 0

    def has_taken_in(self, views: Sequence[View]) -> bool:
        """Whether all of it has been computed, to gold, and nothing is under way."""
        hours = {f"{view.time:%Y-%m-%d-%H}:00" for view in views}
        days = {f"{view.time:%Y-%m-%d}" for view in views}
        with dg.DagsterInstance.from_config(self.environment["DAGSTER_HOME"]) as instance:
            there = hours <= instance.get_materialized_partitions(SILVER)
            there = there and days <= instance.get_materialized_partitions(GOLD)
        return there and not self.works() and self.silver() == expected(views)

    def missing(self, views: Sequence[View]) -> str:
        return f"{(expected(views) - self.silver()).total()} of {len(views)} lines are not in silver"


UNFINISHED = [
    status
    for status in dg.DagsterRunStatus
    if status not in (dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED)
]


def expected(views: Sequence[View]) -> Counter[tuple[datetime, str]]:
    """What silver has to hold: each view once, whatever number of logs had its line."""
    return Counter({(view.time, view.page): 1 for view in views})


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    """A home with an engine, and sensors that look more often than they do by default."""
    folder = tmp_path / "home"
    places = {"DE_HOME": folder, "DE_JARS": Path(os.environ["DE_JARS"]), "DAGSTER_HOME": folder / "dagster"}
    named = {name: str(place) for name, place in places.items()}
    home = Home({**os.environ, **named, "DE_SENSOR_SECONDS": "5", "COLUMNS": "240"})
    services = LocalServices(Settings.from_environment(home.environment))
    services.up(["spark_connect"])
    yield home
    services.down()
    shutil.rmtree(folder, ignore_errors=True)


def test_a_month_of_logs_reaches_gold_without_a_person(soak_seed: int, home: Home, tmp_path: Path) -> None:
    random_ = random.Random(soak_seed)  # noqa: S311 - a world, not a secret
    pieces = steps(month(random_), random_)
    logs = [tmp_path / f"access.log.{number}" for number in range(len(pieces))]
    for log, piece in zip(logs, pieces, strict=True):
        log.write_text("".join(f"{view.line}\n" for view in piece))
    broken = random_.randrange(1, len(logs))
    logs[broken].write_text("this is no line of a log\n" + logs[broken].read_text())
    deaths = set(random_.sample(range(1, len(logs)), KILLS))

    home.de("run", "--once", "--without-services", "--log", str(logs[0]))
    daemon = home.daemon()
    try:
        for number, log in enumerate(logs[1:], 1):
            home.de("land", str(log))
            if number in deaths:
                until(home.works, STEP_SECONDS, daemon.output)
                daemon.kill()  # with the runs that are under way
                daemon = home.daemon()
            _await(home, [view for piece in pieces[: number + 1] for view in piece], daemon)
    finally:
        daemon.kill()

    landed = [view for piece in pieces for view in piece]
    assert home.silver() == expected(landed)
    with dg.DagsterInstance.from_config(home.environment["DAGSTER_HOME"]) as instance:
        days = {f"{START + timedelta(days=day):%Y-%m-%d}" for day in range(DAYS)}
        assert instance.get_materialized_partitions(GOLD) == days
    letters = DeltaTable(f"{home.environment['DE_HOME']}/lake/bronze/visits_dead_letter").to_pyarrow_table()
    assert letters.num_rows == 1


def _await(home: Home, views: Sequence[View], daemon: DagsterProcess) -> None:
    until(lambda: home.has_taken_in(views), STEP_SECONDS, lambda: f"{home.missing(views)}; {daemon.output()}")
