"""Lands an access log by hour. Pattern: Readiness Marker (each folder is published whole, marker last)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from pathlib import Path

from de_assets.sources.access_log.files import access_log_files
from de_assets.sources.access_log.merging import append, missing_lines
from de_assets.sources.access_log.reader import Blank, Rejected, Visit, read_access_log
from de_assets.sources.access_log.spilling import Gathered, Spill
from de_assets.sources.landing import PART, Progress, data_files, hour_folder, incoming, is_ready, publish

LONGEST_SILENCE = timedelta(days=7)
"""A server of which nothing is heard for longer was not quiet: that part of its log was not given."""

_HOUR = timedelta(hours=1)
_LISTED_DEAD_LETTERS = 1000


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Where a rejected line stands and why; its text is in the landed envelope only, since it may be personal."""

    file: str
    line: int
    reason: str


@dataclass
class AccessLogReport:
    """What became of every line: `lines == visits + rejected + blank`, always."""

    lines: int = 0
    visits: int = 0
    rejected: int = 0
    blank: int = 0
    dead_letters: list[DeadLetter] = field(default_factory=list)
    """The first 1,000 rejected lines; `rejected` counts all."""
    hours: list[datetime] = field(default_factory=list)
    """Hours that have a folder now, oldest first."""
    quiet_hours: list[datetime] = field(default_factory=list)
    """Those of `hours` without a line, inside the log."""
    changed_hours: list[datetime] = field(default_factory=list)
    """Those of `hours` that this call wrote; empty when the same log is landed again."""
    per_day: dict[date, int] = field(default_factory=dict)
    """Visits per day (UTC) of their event time, exact copies included."""


def land_access_log(
    landing: Path,
    paths: Iterable[Path | str],
    key: bytes,
    progress: Progress | None = None,
    *,
    now: datetime | None = None,
    before_landing: Callable[[AccessLogReport], None] = lambda _report: None,
) -> AccessLogReport:
    """Land the logs as visits, one folder per hour (UTC) of the requests; never fails on what a line holds.

    A rejected line lands in the hour of the nearest parsed line before it, or of the first one after it at the very
    beginning, also of a file that begins before the one before it ends; in a log without any parsed line, in the hour at which
    its first file was last changed. Files overlap, and so does what is landed already: what is there stays, and of each line
    there are as many copies as in that file, or hour, that has most of them.
    Landing the same lines again, in whatever files, leaves the same folders, untouched. An hour without requests inside a log
    is complete, and empty; a silence of more than `LONGEST_SILENCE` is a part of the log that is not here. Memory is bounded;
    while it runs, the log is on disk once more. `progress` counts bytes on disk; a line of more than a day after `now` (the
    clock's) is rejected. `before_landing` is told what was read when nothing is landed yet; what it raises refuses the log. One
    process at a time may land (`landing_alone`). Raises `NoAccessLogError` and `WeakKeyError`.
    """
    files = access_log_files(paths)
    report = AccessLogReport()
    latest = (now or datetime.now(UTC)) + timedelta(days=1)
    with incoming(landing) as folder:
        gathered = Gathered(folder / "gathered")
        _gather(files, lambda file, told: read_access_log([file], key, told, latest=latest), progress, gathered, report)
        report.quiet_hours = _quiet_hours(gathered.hours)
        report.hours = sorted({*gathered.hours, *report.quiet_hours})
        report.per_day = dict(sorted(report.per_day.items()))
        before_landing(report)
        for hour in report.hours:
            if _land(hour_folder(landing, hour), gathered.file(hour), folder / PART):
                report.changed_hours.append(hour)
    return report


def _land(folder: Path, arrived: Path, prepared: Path) -> bool:
    """Bring an hour's lines into its folder; whether that changed it. `prepared` is where the merged file may be made."""
    if not arrived.exists():
        return not is_ready(folder) and publish(folder, {}, grown=True)
    landed = data_files(folder)
    if not landed:
        return publish(folder, {PART: arrived})
    added = append(missing_lines(landed, arrived), folder / PART, prepared)
    # A publication that died left its folder without a marker, and perhaps with all lines.
    return bool(added or not is_ready(folder)) and publish(folder, {PART: prepared}, grown=True)


def _quiet_hours(hours: Collection[datetime]) -> list[datetime]:
    """The hours between these in which nobody asked for anything."""
    quiet = []
    for before, after in pairwise(sorted(hours)):
        if after - before <= LONGEST_SILENCE:
            quiet += [before + n * _HOUR for n in range(1, (after - before) // _HOUR)]
    return quiet


def _gather(
    files: Sequence[Path],
    read: Callable[[Path, Progress | None], Iterable[Visit | Rejected | Blank]],
    progress: Progress | None,
    gathered: Gathered,
    report: AccessLogReport,
) -> None:
    """Read every file once, count it, and bring its lines together with those of the others."""
    current: datetime | None = None
    timeless: list[Spill] = []
    for number, file in enumerate(files):
        spill = Spill(gathered.folder / f"file-{number}")
        span = _spill_lines(read(file, _of_all(progress, files, number)), current, spill, report)
        if span is None:
            timeless.append(spill)
            continue
        # A file in which no line has a time goes with the one before, or with the first that has one.
        _place(timeless, current or span[0], gathered)
        gathered.take(spill)
        timeless, current = [], span[1]
    _place(timeless, current or _last_change(files[0]), gathered)


def _place(timeless: Iterable[Spill], hour: datetime, gathered: Gathered) -> None:
    for spill in timeless:
        spill.adopt_early_lines(hour)
        gathered.take(spill)


def _spill_lines(
    lines: Iterable[Visit | Rejected | Blank], before: datetime | None, spill: Spill, report: AccessLogReport
) -> tuple[datetime, datetime] | None:
    """Count a file's lines and keep them by hour; the hours of its first and last visit. `before`: of the file before."""
    first: datetime | None = None
    current: datetime | None = None
    for line in lines:
        report.lines += 1
        match line:
            case Visit(event_time, json_line):
                current = event_time.replace(minute=0, second=0, microsecond=0)
                if first is None:
                    first = current
                    spill.adopt_early_lines(min(before or first, first))
                report.visits += 1
                report.per_day[event_time.date()] = report.per_day.get(event_time.date(), 0) + 1
                spill.add(current, json_line)
            case Rejected():
                report.rejected += 1
                if len(report.dead_letters) < _LISTED_DEAD_LETTERS:
                    report.dead_letters.append(DeadLetter(line.file, line.line, line.reason))
                spill.add(current, line.json_line)
            case Blank():
                report.blank += 1
    return (first, current) if first and current else None


def _of_all(progress: Progress | None, files: Sequence[Path], number: int) -> Progress | None:
    """What a file's reading tells, as a part of all files."""
    if progress is None:
        return None
    sizes = [file.stat().st_size for file in files]
    return lambda done, _: progress(sum(sizes[:number]) + done, sum(sizes))


def _last_change(file: Path) -> datetime:
    """Hour of the file's last change: all that is known when no line has a time."""
    changed = datetime.fromtimestamp(file.stat().st_mtime, UTC)
    return changed.replace(minute=0, second=0, microsecond=0)
