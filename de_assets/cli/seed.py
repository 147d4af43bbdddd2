"""`de seed`: feed the sources."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from de_assets.calendar import DEFAULT, Calendar
from de_assets.cli.app import app, console, explained
from de_resources.errors import PermanentError
from de_resources.settings import Settings

if TYPE_CHECKING:
    from de_assets.sources.access_log import AccessLogReport
    from de_assets.sources.landing import Progress as Advance
    from de_assets.sources.seeding import Say, Seeded

DAYS, VISITS, SEED = 3, 30_000, 7

Log = Annotated[
    list[str] | None, typer.Option("--log", help="Access log (file, folder or glob) instead of a simulation.")
]
Days = Annotated[int, typer.Option(min=1, help="Simulated days.")]
Visits = Annotated[int, typer.Option(min=1, help="Simulated visits in all.")]
SeedNumber = Annotated[int, typer.Option("--seed", help="Seed of the simulated world.")]
Start = Annotated[str, typer.Option(help="First simulated day, ISO.")]


@app.command()
def seed(
    log: Log = None,
    days: Days = DAYS,
    visits: Visits = VISITS,
    seed_number: SeedNumber = SEED,
    start: Start = f"{DEFAULT.start:%Y-%m-%d}",
) -> None:
    """Feed the sources with simulated data, or land an access log. Doing it again changes nothing."""
    with explained():
        feed(Feeding(log, days, visits, seed_number, start))


@dataclass(frozen=True)
class Feeding:
    """What to feed the sources with, as it was asked for: a log, or a simulation of so many days and visits."""

    log: list[str] | None
    days: int
    visits: int
    seed_number: int
    start: str


def feed(what: Feeding, services_are_up: Callable[[], object] = lambda: None) -> tuple[Seeded, AccessLogReport | None]:
    """Feed the sources with a progress display, and say what was done. Files are landed before `services_are_up` is asked."""
    from de_assets.sources.seeding import seed_access_log, seed_simulation

    settings = Settings.from_environment()
    report = None
    with _bar("Seeding") as (advance, say):
        if what.log:
            seeded, report = seed_access_log(settings, what.log, advance)
        else:

            def ready() -> None:
                say("waiting for the services")
                services_are_up()

            calendar = _calendar(what.start, what.days)
            seeded = seed_simulation(
                settings,
                calendar,
                seed=what.seed_number,
                visits=what.visits,
                progress=advance,
                say=say,
                services_are_up=ready,
            )
    _tell(seeded, report)
    return seeded, report


def _calendar(start: str, days: int) -> Calendar:
    try:
        first = datetime.fromisoformat(start)
    except ValueError:
        raise PermanentError(f"--start {start[:40]!r} is no ISO date, such as 2024-10-10.") from None
    return Calendar.parse(f"{first:%Y-%m-%dT%H}/{first + timedelta(days=days):%Y-%m-%dT%H}")


def _tell(seeded: Seeded, report: AccessLogReport | None) -> None:
    if report is not None:
        console.print(
            f"{report.lines:,} lines read: {report.visits:,} visits in {len(report.hours)} hours, "
            f"{len(report.dead_letters)} dead letter(s)."
        )
        for letter in report.dead_letters[:5]:
            console.print(f"  {letter.file} line {letter.line}: {letter.reason}", highlight=False, markup=False)
    else:
        console.print(
            f"{seeded.visits:,} visits landed for {seeded.calendar}, {seeded.messages + seeded.releases:,} records produced, "
            f"{seeded.user_changes:,} changes of users, {seeded.legacy_visits:,} legacy visits."
        )
    for service, why in seeded.left_out.items():
        console.print(f"[yellow]left out[/yellow] {service}: {why}", highlight=False)


@contextmanager
def _bar(title: str) -> Iterator[tuple[Advance, Say]]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(title, total=None)

        def advance(done: int, total: int) -> None:
            progress.update(task, completed=done, total=total)

        def say(what: str) -> None:
            progress.update(task, description=f"{title}: {what}")

        yield advance, say
