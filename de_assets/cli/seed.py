"""`de seed`: feed the sources."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from de_assets.calendar import DEFAULT, Calendar, CalendarOrigin, RecordedCalendar
from de_assets.cli.terminal import console, explained
from de_resources.errors import PermanentError
from de_resources.settings import Settings

if TYPE_CHECKING:
    from de_assets.sources.access_log import AccessLogReport
    from de_assets.sources.landing import Progress as Advance
    from de_assets.sources.seeding import Say, Seeded

DAYS, VISITS, SEED = 3, 30_000, 7
_SHOWN = 5

Log = Annotated[
    list[str] | None, typer.Option("--log", help="Access log (file, folder or glob) instead of a simulation.")
]
Days = Annotated[int, typer.Option(min=1, help="Simulated days.")]
Visits = Annotated[int, typer.Option(min=1, help="Simulated visits in all.")]
SeedNumber = Annotated[int, typer.Option("--seed", help="Seed of the simulated world.")]
Follow = Annotated[bool, typer.Option("--follow", help="Open the calendar: every hour that passes is one of it.")]
Start = Annotated[str, typer.Option(help="First simulated day, ISO.")]


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


def land(
    logs: Annotated[list[str], typer.Argument(help="Access logs: files, folders or globs.", metavar="FOLDER|FILE…")],
    follow: Follow = False,
) -> None:
    """Land access logs and start nothing: a platform that is running takes the hours in by itself.

    Lines of hours that are landed already are merged, and such an hour is read again. Doing it again changes nothing.
    """
    with explained():
        feed(Feeding(logs, follow=follow))


@dataclass(frozen=True)
class Feeding:
    """What to feed the sources with, as it was asked for: a log, or a simulation of so many days and visits."""

    log: list[str] | None
    days: int = DAYS
    visits: int = VISITS
    seed_number: int = SEED
    start: str = f"{DEFAULT.start:%Y-%m-%d}"
    follow: bool = False
    """Leave the calendar open at its end."""


def feed(what: Feeding, services_are_up: Callable[[], object] = lambda: None) -> tuple[Seeded, AccessLogReport | None]:
    """Feed the sources with a progress display, and say what was done. Files are landed before `services_are_up` is asked.

    A home that holds logs is not simulated into. Raises what seeding raises.
    """
    settings = Settings.from_environment()
    recorded = RecordedCalendar.find(settings)
    holds_logs = recorded is not None and recorded.of == CalendarOrigin.LOGS
    if what.follow and not what.log and not holds_logs:
        raise PermanentError("--follow goes with logs: give one with `--log`, or land one with `de land`.")
    report = None
    if what.log:
        seeded, report = _land(settings, what.log)
        _tell_log(report)
    elif recorded is not None and holds_logs:
        seeded = _nothing_to_simulate(recorded.calendar)
    else:
        seeded = _simulate(settings, what, services_are_up)
    if what.follow:
        seeded.calendar = seeded.calendar.opened
        seeded.calendar.save(settings, CalendarOrigin.LOGS)
    console.print(
        f"The calendar is {seeded.calendar}{' and open' if seeded.calendar.end is None else ''}.", highlight=False
    )
    for service, why in seeded.left_out.items():
        console.print(Text.assemble(("left out", "yellow"), f" {service}: {why}"))
    return seeded, report


def _land(settings: Settings, logs: Sequence[str]) -> tuple[Seeded, AccessLogReport]:
    from de_assets.sources.seeding import seed_access_log

    with _bar("Landing") as (advance, _):
        return seed_access_log(settings, logs, advance)


def _nothing_to_simulate(calendar: Calendar) -> Seeded:
    from de_assets.sources.seeding import Seeded

    console.print(
        "This home holds access logs: nothing is simulated in it. A simulation has its own: DE_HOME=.de-simulated"
    )
    return Seeded(calendar)


def _simulate(settings: Settings, what: Feeding, services_are_up: Callable[[], object]) -> Seeded:
    from de_assets.sources.seeding import seed_simulation

    calendar = _calendar(what.start, what.days)
    with _bar("Seeding") as (advance, say):

        def ready() -> None:
            say("waiting for the services")
            services_are_up()

        seeded = seed_simulation(
            settings,
            calendar,
            seed=what.seed_number,
            visits=what.visits,
            progress=advance,
            say=say,
            services_are_up=ready,
        )
    console.print(
        f"{seeded.visits:,} visits landed for {seeded.calendar}, {seeded.messages + seeded.releases:,} records produced, "
        f"{seeded.user_changes:,} changes of users, {seeded.legacy_visits:,} legacy visits."
    )
    return seeded


def _calendar(start: str, days: int) -> Calendar:
    try:
        first = datetime.fromisoformat(start)
    except ValueError:
        raise PermanentError(f"--start {start[:40]!r} is no ISO date, such as 2024-10-10.") from None
    return Calendar.parse(f"{first:%Y-%m-%dT%H}/{first + timedelta(days=days):%Y-%m-%dT%H}")


def _tell_log(report: AccessLogReport) -> None:
    console.print(
        f"{report.lines:,} lines read: {report.visits:,} visits in {len(report.hours)} hours, "
        f"{report.rejected:,} dead letter(s). {len(report.changed_hours)} hours are new or have grown, "
        f"{len(report.quiet_hours)} are quiet."
    )
    for letter in report.dead_letters[:_SHOWN]:
        console.print(f"  {letter.file} line {letter.line}: {letter.reason}", highlight=False)
    if report.rejected > _SHOWN:
        console.print(f"  … and {report.rejected - _SHOWN:,} more; `de dlq inspect` lists them when they are read")


@contextmanager
def _bar(title: str) -> Iterator[tuple[Advance, Say]]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    said = TextColumn("{task.description}", markup=False)
    columns = SpinnerColumn(), said, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(title, total=None)

        def advance(done: int, total: int) -> None:
            progress.update(task, completed=done, total=total)

        def say(what: str) -> None:
            progress.update(task, description=f"{title}: {what}")

        yield advance, say
