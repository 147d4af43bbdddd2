"""Lands an access log by hour. Pattern: Readiness Marker (each folder is published whole, marker last)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from pathlib import Path

from de_assets.sources.access_log.files import access_log_files
from de_assets.sources.access_log.merging import append, missing_lines
from de_assets.sources.access_log.reader import Blank, Rejected, Visit, read_access_log
from de_assets.sources.landing import PART, Progress, data_files, hour_folder, incoming, is_ready, publish

LONGEST_SILENCE = timedelta(days=7)
"""A server of which nothing is heard for longer was not quiet: that part of its log was not given."""

_HOUR = timedelta(hours=1)
_BUFFERED_BYTES = 8 * 1024 * 1024
_LISTED_DEAD_LETTERS = 1000
_EARLIEST_HOUR = "pending"


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


class _Spill:
    """Lines per hour on disk behind one bounded buffer; lines before the first known hour wait in their own file."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._buffers: defaultdict[str, list[bytes]] = defaultdict(list)
        self._buffered = 0
        self.hours: set[datetime] = set()

    def add(self, hour: datetime | None, line: bytes) -> None:
        """Keep one line; `None` is "before the first hour"."""
        if hour is not None:
            self.hours.add(hour)
        self._buffers[self._name(hour)].append(line)
        self._buffered += len(line)
        if self._buffered > _BUFFERED_BYTES:
            self.flush()

    def flush(self) -> None:
        """Move the buffer to disk."""
        for name, lines in self._buffers.items():
            with (self._folder / name).open("ab") as out:
                out.writelines(lines)
        self._buffers.clear()
        self._buffered = 0

    def adopt_early_lines(self, hour: datetime) -> None:
        """Give the lines that came before the first known hour to `hour`."""
        self.flush()
        early = self._folder / _EARLIEST_HOUR
        if early.exists():
            self.hours.add(hour)
            early.replace(self.file(hour))

    def file(self, hour: datetime) -> Path:
        """Where the lines of `hour` are, once flushed."""
        return self._folder / self._name(hour)

    @staticmethod
    def _name(hour: datetime | None) -> str:
        return _EARLIEST_HOUR if hour is None else f"{hour.date().isoformat()}T{hour.hour:02}"


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
    beginning; in a log without any parsed line, in the hour at which its first file was last changed. An hour that is landed
    already is merged: what it holds stays, and of each line there are as many copies as the side has that has more of them.
    Landing the same lines again, in whatever files, leaves the same folders, untouched. An hour without requests inside a log
    is complete, and empty; a silence of more than `LONGEST_SILENCE` is a part of the log that is not here. Memory is bounded;
    while it runs, the log is on disk once more. `progress` counts bytes on disk; a line of more than a day after `now` (the
    clock's) is rejected. `before_landing` is told what was read when nothing is landed yet; what it raises refuses the log. One
    process at a time may land (`landing_alone`). Raises `NoAccessLogError` and `WeakKeyError`.
    """
    given = list(paths)
    report = AccessLogReport()
    latest = (now or datetime.now(UTC)) + timedelta(days=1)
    with incoming(landing) as folder:
        spill = _Spill(folder)
        per_day = _spill_lines(given, read_access_log(given, key, progress, latest=latest), spill, report)
        spill.flush()
        report.quiet_hours = _quiet_hours(spill.hours)
        report.hours = sorted({*spill.hours, *report.quiet_hours})
        report.per_day = dict(sorted(per_day.items()))
        before_landing(report)
        for hour in report.hours:
            if _land(hour_folder(landing, hour), spill.file(hour), folder / PART):
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


def _spill_lines(
    paths: list[Path | str], lines: Iterable[Visit | Rejected | Blank], spill: _Spill, report: AccessLogReport
) -> Counter[date]:
    """Read everything once, count it, and keep it by hour."""
    current: datetime | None = None
    per_day: Counter[date] = Counter()
    for line in lines:
        report.lines += 1
        match line:
            case Visit(event_time, json_line):
                hour = event_time.replace(minute=0, second=0, microsecond=0)
                if current is None:
                    spill.adopt_early_lines(hour)
                current = hour
                report.visits += 1
                per_day[event_time.date()] += 1
                spill.add(hour, json_line)
            case Rejected():
                report.rejected += 1
                if len(report.dead_letters) < _LISTED_DEAD_LETTERS:
                    report.dead_letters.append(DeadLetter(line.file, line.line, line.reason))
                spill.add(current, line.json_line)
            case Blank():
                report.blank += 1
    if current is None:
        spill.adopt_early_lines(_last_change(paths))
    return per_day


def _last_change(paths: list[Path | str]) -> datetime:
    """Hour of the first file's last change: all that is known when no line has a time."""
    changed = datetime.fromtimestamp(access_log_files(paths)[0].stat().st_mtime, UTC)
    return changed.replace(minute=0, second=0, microsecond=0)
