"""`de run`: services, data, the whole graph, a summary, and the UI."""

from __future__ import annotations

import gc
import os
import shutil
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from de_assets.calendar import DEFAULT
from de_assets.cli.own_words import own_words
from de_assets.cli.seed import DAYS, SEED, VISITS, Days, Feeding, Follow, Log, SeedNumber, Start, Visits, feed
from de_assets.cli.terminal import console, explained
from de_assets.sources.capture import CAPTURES
from de_assets.sources.topics import TOPICS
from de_resources.settings import Settings

if TYPE_CHECKING:
    from dagster import DagsterInstance

    from de_resources.local.services import LocalServices

AT_ONCE = 3
"""Runs side by side on a shared engine: while one computes, others plan, commit or keep their books."""
_NO_CAPTURE = {"module": "dagster._core.storage.noop_compute_log_manager", "class": "NoOpComputeLogManager"}


def run(
    log: Log = None,
    days: Days = DAYS,
    visits: Visits = VISITS,
    seed_number: SeedNumber = SEED,
    start: Start = f"{DEFAULT.start:%Y-%m-%d}",
    follow: Follow = False,
    once: Annotated[bool, typer.Option("--once", help="End after the summary instead of serving the UI.")] = False,
    again: Annotated[
        bool, typer.Option("--again", help="Compute all partitions again, also those that are up to date.")
    ] = False,
    without_services: Annotated[
        bool, typer.Option("--without-services", help="Start no service; the engine runs inside this process.")
    ] = False,
    port: Annotated[int, typer.Option(help="Port of the UI on loopback; 0: any free one.")] = 3000,
) -> None:
    """Start the services, feed the sources, materialise the graph, say what happened, and serve the UI until Ctrl-C.

    Partitions are computed that are missing, that read something which has changed since, or that a check did not let pass.

    Without a terminal it behaves as with `--once`: it ends with an exit status that says whether all went well, and
    stops what it started.
    """
    from de_assets.cli.ui import serve
    from de_resources.local.services import LocalServices
    from de_resources.spark import close_connections

    settings = Settings.from_environment()
    services = LocalServices(settings)
    with explained():
        try:
            with own_words(settings) as log_file:
                feeding = Feeding(log, days, visits, seed_number, start, follow)
                good = _fill(settings, services, feeding, without_services=without_services, again=again)
                if not good:
                    console.print(f"What libraries said meanwhile: {log_file}", highlight=False)
            if not once and sys.stdout.isatty():
                serve(settings, port)
        finally:
            with own_words(settings):
                close_connections()
                services.down_started()
    raise typer.Exit(0 if good else 1)


def _fill(
    settings: Settings, services: LocalServices, feeding: Feeding, *, without_services: bool, again: bool
) -> bool:
    """Services start, and the engine gets warm, while files are landed; then the whole graph is materialised."""
    with ThreadPoolExecutor(2, thread_name_prefix="start") as beside:
        if without_services:
            absent = {s.name: "services were not asked for" for s in services.status() if not s.is_running}
            seeded, _ = feed(feeding)
        else:
            starting = beside.submit(_bring_up, services, partial(beside.submit, _warm_up, settings))
            seeded, _ = feed(feeding, services_are_up=starting.result)
            with console.status("Starting services …"):
                absent = starting.result()
    return _materialise(settings, absent, another_world=seeded.took_the_place, again=again)


def _bring_up(services: LocalServices, engine_is_up: Callable[[], object]) -> dict[str, str]:
    """Start the services; what cannot run here is left out, with the reason."""
    from de_resources.local.services import ServicesFailed
    from de_resources.local.spark_connect import SparkConnectService

    def progress(name: str, what: str) -> None:
        if (name, what) == (SparkConnectService.name, "ready"):
            engine_is_up()

    try:
        statuses = services.up(topics=TOPICS, captures=CAPTURES, console=console, progress=progress)
    except ServicesFailed as error:
        console.print(Text(str(error), "yellow"))
        statuses = services.status()
    return {s.name: s.why or str(s.state) for s in statuses if not s.is_running}


def _warm_up(settings: Settings) -> None:
    from de_resources.engine.plans import interpret_plans
    from de_resources.engine.warming import warm
    from de_resources.spark import SparkEngine

    session = SparkEngine().spark_session
    interpret_plans(session)
    warm(session, settings.home / "spark" / "scratch")


def dagster_instance(settings: Settings) -> DagsterInstance:
    """Dagster's instance of this home, with the project's `dagster.yaml`; made on first use.

    It captures no output of steps: Dagster does that by exchanging the process's file descriptors, which threads share.
    """
    from dagster import DagsterInstance

    home = settings.dagster_home
    home.mkdir(parents=True, exist_ok=True)
    source = Path("dagster.yaml")
    if source.exists():
        shutil.copyfile(source, home / "dagster.yaml")
    os.environ["DAGSTER_HOME"] = str(home)
    return DagsterInstance.local_temp(str(home), overrides={"compute_logs": _NO_CAPTURE})


def _materialise(settings: Settings, absent: dict[str, str], *, another_world: bool, again: bool) -> bool:
    # The definitions read the calendar that seeding has just recorded, hence the late imports.
    from de_assets.automation.openlineage import tell_runs
    from de_assets.catalogue import load_locations
    from de_assets.cli.summary import show
    from de_assets.filling import Unit, UnitOutcome, UpToDate, fill, units
    from de_assets.filling.plans import choose_plans
    from de_assets.filling.sources import Availability
    from de_assets.filling.stores import Stores
    from de_assets.filling.units import external_assets
    from de_assets.sources.landing_zone import LandingZone
    from de_checks.volume import ACCEPT_TAG
    from de_resources.spark import SparkEngine

    locations = load_locations()
    gc.freeze()  # what is loaded is never garbage: no collection has to look at it again
    chosen = units(locations)
    sources = Availability(external_assets(locations), LandingZone(root=str(settings.landing)), absent)
    # Several runs at once are for a server: an engine inside this process takes all of its cores anyway.
    engine = SparkEngine()
    at_once = AT_ONCE if engine.shared else 1
    if engine.shared:
        choose_plans(engine.spark_session, settings.landing)
    said = TextColumn("{task.description}", markup=False)
    columns = SpinnerColumn(), said, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    outcomes: list[UnitOutcome] = []
    at_work: dict[Unit, None] = {}
    with dagster_instance(settings) as instance, Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("Materialising", total=len(chosen))

        def tell() -> None:
            progress.update(task, description=f"Materialising {'; '.join(unit.name for unit in list(at_work))}")

        def started(unit: Unit) -> None:
            at_work[unit] = None
            tell()

        # Other numbers than before are then what was asked for, and no news.
        tags = {ACCEPT_TAG: "a log took the place of the simulation"} if another_world else {}
        up_to_date = None if again else UpToDate(instance, Stores.of(settings, locations).has)
        ends = fill(
            chosen,
            instance,
            sources.look,
            absent=absent,
            at_once=at_once,
            started=started,
            tags=tags,
            up_to_date=up_to_date,
        )
        for outcome in ends:
            outcomes.append(outcome)
            at_work.pop(outcome.unit, None)
            progress.advance(task)
            tell()
        lineage = tell_runs(instance, locations)
        progress.update(task, description="Writing the observatory")
        site = _observed(instance, settings)
    good = show(outcomes, settings)
    if lineage.away:
        console.print(Text(f"OpenLineage events wait: {lineage.away}"))
    for line in site:
        console.print(line, highlight=False)
    return good


def _observed(instance: DagsterInstance, settings: Settings) -> list[str]:
    """The observatory after the run. Who only looks, does not make a run fail."""
    from de_assets.automation.observatory import write_observatory
    from de_resources.pages.files import NotPublished

    try:
        return write_observatory(instance, settings.home, datetime.now(UTC), quickly=True).lines
    except NotPublished as error:
        return [str(error)]
