"""`de run`: services, data, the whole graph, a summary, and the UI."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from de_assets.calendar import DEFAULT
from de_assets.cli.app import app, console, explained
from de_assets.cli.seed import DAYS, SEED, VISITS, Days, Log, SeedNumber, Start, Visits, feed
from de_assets.sources.capture import CAPTURES
from de_assets.sources.topics import TOPICS
from de_resources.settings import Settings

if TYPE_CHECKING:
    from dagster import DagsterInstance

    from de_resources.local.services import LocalServices


@app.command()
def run(
    log: Log = None,
    days: Days = DAYS,
    visits: Visits = VISITS,
    seed_number: SeedNumber = SEED,
    start: Start = f"{DEFAULT.start:%Y-%m-%d}",
    once: Annotated[bool, typer.Option("--once", help="End after the summary instead of serving the UI.")] = False,
    without_services: Annotated[
        bool, typer.Option("--without-services", help="Start no service; the engine runs inside this process.")
    ] = False,
    port: Annotated[int, typer.Option(help="Port of the UI on loopback; 0: any free one.")] = 3000,
) -> None:
    """Start the services, feed the sources, materialise the graph, say what happened, and serve the UI until Ctrl-C.

    Without a terminal it behaves as with `--once`: it ends with an exit status that says whether all went well, and
    stops what it started.
    """
    from de_assets.cli.ui import serve
    from de_resources.local.services import LocalServices
    from de_resources.spark import close_connections

    settings = Settings.from_environment()
    services = LocalServices(settings)
    running_before = {s.name for s in services.status() if s.is_running}
    with explained():
        try:
            absent = _left_alone(services) if without_services else _bring_up(services)
            feed(log, days, visits, seed_number, start)
            good = _materialise(settings, absent)
            if not once and sys.stdout.isatty():
                serve(settings, port)
        finally:
            close_connections()
            if not running_before:
                services.down()
    raise typer.Exit(0 if good else 1)


def _bring_up(services: LocalServices) -> dict[str, str]:
    """Start the services; what cannot run here is left out, with the reason."""
    from de_resources.local.services import ServicesFailed

    with console.status("Starting services …") as status:
        try:
            statuses = services.up(
                topics=TOPICS,
                captures=CAPTURES,
                console=console,
                progress=lambda name, what: status.update(f"{name}: {what}"),
            )
        except ServicesFailed as error:
            console.print(f"[yellow]{error}[/yellow]", highlight=False)
            statuses = services.status()
    return {s.name: s.why or str(s.state) for s in statuses if not s.is_running}


def _left_alone(services: LocalServices) -> dict[str, str]:
    return {s.name: "services were not asked for" for s in services.status() if not s.is_running}


def dagster_instance(settings: Settings) -> DagsterInstance:
    """Dagster's instance of this home, with the project's `dagster.yaml`; made on first use."""
    from dagster import DagsterInstance

    home = settings.dagster_home
    home.mkdir(parents=True, exist_ok=True)
    source = Path("dagster.yaml")
    if source.exists():
        shutil.copyfile(source, home / "dagster.yaml")
    os.environ["DAGSTER_HOME"] = str(home)
    return DagsterInstance.get()


def _materialise(settings: Settings, absent: dict[str, str]) -> bool:
    # The definitions read the calendar that seeding has just recorded, hence the late import.
    from de_assets.cli.stages import Outcome, Stage, materialise, stages
    from de_assets.cli.summary import show
    from de_assets.definitions import defs

    columns = SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    outcomes: list[Outcome] = []
    with dagster_instance(settings) as instance, Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("Materialising", total=len(stages()))

        def started(stage: Stage) -> None:
            progress.update(task, description=f"Materialising {stage.name}")

        for outcome in materialise(defs, instance, settings, absent=absent, started=started):
            outcomes.append(outcome)
            progress.advance(task)
    return show(outcomes, settings)
