"""A home that lives: days of page views, cut into logs that land one after the other under a real daemon."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Protocol

import dagster as dg
from deltalake import DeltaTable
from waiting import PATIENCE
from web_ui import PROJECT, SERVE, DagsterProcess, until

from de_resources.launcher.worker import Worker
from de_resources.local import LocalServices
from de_resources.run_queue.places import WAITS_FOR, partition_range
from de_resources.settings import Settings

START = datetime(2024, 3, 1, tzinfo=UTC)
STEPS = 4
STEP_SECONDS = 600.0
AGENT = "Mozilla/5.0 (X11; Linux x86_64; rv:125.0) Gecko/20100101 Firefox/125.0"
SILVER, GOLD = dg.AssetKey(["silver", "visits"]), dg.AssetKey(["gold", "visits_cube_daily"])
UNFINISHED = [
    status
    for status in dg.DagsterRunStatus
    if status not in (dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED)
]


@dataclass(frozen=True)
class View:
    """One page view; its page tells it from all others."""

    time: datetime
    page: str
    address: str = "192.0.2.7"

    @property
    def line(self) -> str:
        when = self.time.strftime("%d/%b/%Y:%H:%M:%S +0000")
        return f'{self.address} - - [{when}] "GET {self.page} HTTP/1.1" 200 512 "-" "{AGENT}"'


def visited(random_: random.Random, days: int, start: datetime = START) -> list[View]:
    """Twenty to forty views an hour, in their order, and every third hour quiet, but no first and last one of a day."""
    views: list[View] = []
    for hour in range(24 * days):
        quiet = hour % 24 not in (0, 23) and random_.random() < 1 / 3
        for _ in range(0 if quiet else random_.randint(20, 40)):
            moment = start + timedelta(hours=hour, seconds=random_.randrange(3600))
            views.append(View(moment, f"/page/{len(views)}"))
    return sorted(views, key=lambda view: view.time)


def steps(views: Sequence[View], random_: random.Random, days: int, *, overlap: bool) -> list[list[View]]:
    """The time in pieces of whole days, each of which may begin with the last lines of the one before."""
    between = sorted(random_.sample(range(1, days), STEPS - 1))
    bounds = [START + timedelta(days=day) for day in (0, *between, days)]
    pieces = []
    for first, last in pairwise(bounds):
        of_piece = [view for view in views if first <= view.time < last]
        before = [view for view in views if view.time < first][-random_.randint(1, 5) :] if overlap else []
        pieces.append([*before, *of_piece])
    return pieces


def written(folder: Path, pieces: Sequence[Sequence[View]]) -> list[Path]:
    """A log of each piece."""
    logs = [folder / f"access.log.{number}" for number in range(len(pieces))]
    for log, piece in zip(logs, pieces, strict=True):
        log.write_text("".join(f"{view.line}\n" for view in piece))
    return logs


def expected(views: Sequence[View]) -> Counter[tuple[datetime, str]]:
    """What silver has to hold: each view once, whatever number of logs had its line."""
    return Counter({(view.time, view.page): 1 for view in views})


class Talks(Protocol):
    """A process that can be asked for the end of what it printed."""

    def output(self) -> str: ...


@dataclass
class Served:
    """What `de run` serves: webserver and daemon, watched by a process of ours."""

    log: Path
    process: subprocess.Popen[str]

    def output(self) -> str:
        return self.log.read_text(errors="replace")[-2000:]


@dataclass
class Home:
    """A platform's home, its engine, and what was landed in it so far."""

    environment: dict[str, str]
    killed: list[str] = field(default_factory=list)
    """Runs whose worker was killed, the last one in the middle of its work."""

    def de(self, *arguments: str) -> None:
        command = [str(Path(sys.executable).with_name("de")), *arguments]
        done = subprocess.run(command, cwd=PROJECT, env=self.environment, capture_output=True, text=True, timeout=800)
        assert done.returncode == 0, done.stdout + done.stderr

    def daemon(self) -> DagsterProcess:
        return DagsterProcess(["dagster._daemon", "run", "-w", str(PROJECT / "workspace.yaml")], self.environment)

    @contextmanager
    def served(self) -> Iterator[Served]:
        """The UI as `de run` serves it; nothing of it is left afterwards."""
        log = Path(self.environment["DE_HOME"], "served.log")
        with log.open("w") as said:
            command = [sys.executable, "-c", SERVE, "0"]
            process = subprocess.Popen(command, cwd=PROJECT, env=self.environment, stdout=said, stderr=said, text=True)
        served = Served(log, process)
        try:
            until(lambda: "Dagster UI" in log.read_text(), 200, served.output)
            yield served
        finally:
            process.terminate()
            process.wait(timeout=90)

    def table(self, name: str) -> Path:
        return Path(self.environment["DE_HOME"], "lake", name)

    def silver(self) -> Counter[tuple[datetime, str]]:
        table = DeltaTable(str(self.table("silver/visits")))
        rows = table.to_pyarrow_table(columns=["event_time", "page"]).to_pylist()
        return Counter((row["event_time"].astimezone(UTC), row["page"]) for row in rows)

    def works(self) -> bool:
        """Whether some run has begun, or waits, and has not ended."""
        with self._instance() as instance:
            return instance.get_runs_count(dg.RunsFilter(statuses=UNFINISHED)) > 0

    def computes(self) -> bool:
        """Whether some run is in the middle of a step that is for partitions."""
        with self._instance() as instance:
            return any(_computes(instance, run) for run in instance.get_runs(_STARTED))

    def materialized(self, asset: dg.AssetKey) -> set[str]:
        with self._instance() as instance:
            return set(instance.get_materialized_partitions(asset))

    def has_taken_in(self, views: Sequence[View]) -> bool:
        """Whether all of it has been computed, to gold, and nothing is under way."""
        hours = {f"{view.time:%Y-%m-%d-%H}:00" for view in views}
        days = {f"{view.time:%Y-%m-%d}" for view in views}
        there = hours <= self.materialized(SILVER) and days <= self.materialized(GOLD)
        return there and not self.works() and self.silver() == expected(views)

    def takes_in(self, views: Sequence[View], daemon: Talks, seconds: float = STEP_SECONDS) -> None:
        """Wait until it has; a home in which nothing is under way any more, and something is missing, is not waited for."""
        worked = time.monotonic()

        def told() -> str:
            missing = (expected(views) - self.silver()).total()
            return f"{missing} of {len(views)} lines are not in silver; {self.state(views)}; {daemon.output()}"

        def done() -> bool:
            nonlocal worked
            worked = time.monotonic() if self.works() else worked
            assert time.monotonic() - worked < PATIENCE, f"nothing is under way, and not all is there: {told()}"
            return self.has_taken_in(views)

        until(done, seconds, told)

    def state(self, views: Sequence[View]) -> str:
        """For whoever waits in vain: runs by status, what each unfinished one is for and waits for, and what is missing."""
        with self._instance() as instance:
            runs = instance.get_runs()
        unfinished = [_told(run) for run in runs if run.status in UNFINISHED]
        failed = [_told(run) for run in runs if run.status == dg.DagsterRunStatus.FAILURE]
        hours = {f"{view.time:%Y-%m-%d-%H}:00" for view in views} - self.materialized(SILVER)
        days = {f"{view.time:%Y-%m-%d}" for view in views} - self.materialized(GOLD)
        by_status = dict(Counter(run.status.value for run in runs))
        return f"runs {by_status}; unfinished {unfinished}; failed {failed}; missing {sorted(hours)}, {sorted(days)}"

    def commits(self, table: str, column: str) -> Counter[str]:
        """How often the data of each partition was written, as the table's own log tells; a compaction changes no data."""
        counted: Counter[str] = Counter()
        for commit in (self.table(table) / "_delta_log").glob("*.json"):
            adds = [action["add"] for action in map(json.loads, commit.read_text().splitlines()) if "add" in action]
            counted.update({add["partitionValues"][column] for add in adds if add["dataChange"]})
        return counted

    def kills_a_worker(self, random_: random.Random, daemon: Talks, seconds: float = STEP_SECONDS) -> None:
        """Kill -9 a process that computes partitions of the lake, in the middle of a step; its run then is no success.

        A run into the database is none of them: this home has none, and its second try could not succeed either.
        """
        with self._instance() as instance:

            def one_died() -> bool:
                """One that had ended well a moment before its death is none: another one is killed."""
                last = instance.get_run_by_id(self.killed[-1]) if self.killed else None
                if last is None or last.status == dg.DagsterRunStatus.SUCCESS:
                    at_work = {
                        run.run_id: worker
                        for run in instance.get_runs(_STARTED)
                        if _into_lake(run) and _computes(instance, run)
                        if (worker := Worker.of(run)) is not None and worker.is_alive
                    }
                    if at_work:
                        run_id, chosen = random_.choice(sorted(at_work.items()))
                        self.killed.append(run_id)
                        os.kill(chosen.pid, signal.SIGKILL)
                return last is not None and last.status == dg.DagsterRunStatus.FAILURE

            until(one_died, seconds, lambda: f"killed {self.killed}; {self.state([])}; {daemon.output()}")

    def started_again(self, run_id: str) -> list[dg.DagsterRunStatus]:
        """How the runs ended that the instance has started again in the place of this one."""
        with self._instance() as instance:
            again = instance.get_runs(dg.RunsFilter(tags={"dagster/parent_run_id": run_id}))
            return [run.status for run in again]

    def _instance(self) -> dg.DagsterInstance:
        return dg.DagsterInstance.from_config(self.environment["DAGSTER_HOME"])


def _told(run: dg.DagsterRun) -> str:
    """What a run is for, what it waits for in the queue, who works at it, and of which run it is another try."""
    first, last = partition_range(run.tags)
    assets = sorted(key.to_user_string() for key in run.asset_selection or ())
    worker = Worker.of(run)
    works = "no worker" if worker is None else f"worker {worker.pid} {'lives' if worker.is_alive else 'is gone'}"
    waits, parent = run.tags.get(WAITS_FOR, ""), run.tags.get("dagster/parent_run_id", "")[:8]
    return f"{run.run_id[:8]} {run.status.value} {first} to {last} of {assets}, {works}, waits for {waits!r}, again {parent!r}"


_STARTED = dg.RunsFilter(statuses=[dg.DagsterRunStatus.STARTED])
_STEPS = {dg.DagsterEventType.STEP_START, dg.DagsterEventType.STEP_SUCCESS, dg.DagsterEventType.STEP_FAILURE}


def _into_lake(run: dg.DagsterRun) -> bool:
    """Whether all that it computes lies in the lake."""
    return bool(run.asset_selection) and all(key.path[0] in ("silver", "gold") for key in run.asset_selection or ())


def _computes(instance: dg.DagsterInstance, run: dg.DagsterRun) -> bool:
    """Whether it is for partitions, and in one of its steps now."""
    if partition_range(run.tags) == (None, None):
        return False
    events = [entry.get_dagster_event().event_type for entry in instance.all_logs(run.run_id, of_type=_STEPS)]
    return bool(events) and events[-1] == dg.DagsterEventType.STEP_START


@contextmanager
def living_home(folder: Path) -> Iterator[Home]:
    """A home with an engine, and sensors that look more often than they do by default."""
    places = {"DE_HOME": folder, "DE_JARS": Path(os.environ["DE_JARS"]), "DAGSTER_HOME": folder / "dagster"}
    named = {name: str(place) for name, place in places.items()}
    home = Home({**os.environ, **named, "DE_SENSOR_SECONDS": "5", "COLUMNS": "240"})
    services = LocalServices(Settings.from_environment(home.environment))
    services.up(["spark_connect"])
    try:
        yield home
    finally:
        services.down()
    shutil.rmtree(folder, ignore_errors=True)  # what failed is left to be looked at
