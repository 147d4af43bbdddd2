"""The lines of a log on disk by hour, while it is read: one file's in `Spill`, those of all files in `Gathered`."""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime
from pathlib import Path

from de_assets.sources.access_log.merging import append, missing_lines

_BUFFERED_BYTES = 8 * 1024 * 1024
_EARLY = "early"


def _name(hour: datetime | None) -> str:
    return _EARLY if hour is None else f"{hour.date().isoformat()}T{hour.hour:02}"


class Spill:
    """Lines of one file per hour behind one bounded buffer; lines before its first known hour wait in a file of their own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir()
        self._buffers: defaultdict[str, list[bytes]] = defaultdict(list)
        self._buffered = 0
        self.hours: set[datetime] = set()

    def add(self, hour: datetime | None, line: bytes) -> None:
        """Keep one line; `None` is "before the first hour"."""
        if hour is not None:
            self.hours.add(hour)
        self._buffers[_name(hour)].append(line)
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
        """Give the lines that came before the first known hour to `hour`, of which there is no other line yet."""
        self.flush()
        early = self._folder / _EARLY
        if early.exists():
            self.hours.add(hour)
            early.replace(self.file(hour))

    def file(self, hour: datetime) -> Path:
        """Where the lines of `hour` are, once flushed."""
        return self._folder / _name(hour)


class Gathered:
    """Lines of several files per hour. Of a line that two files have, the larger number of copies stays."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.hours: set[datetime] = set()

    def take(self, spill: Spill) -> None:
        """Take over what a file had. An hour that no other file had costs nothing."""
        spill.flush()
        for hour in sorted(spill.hours):
            arrived, here = spill.file(hour), self.file(hour)
            if hour in self.hours:
                together = here.with_suffix(".together")
                append(missing_lines([here], arrived), here, together)
                together.replace(here)
                arrived.unlink()
            else:
                arrived.replace(here)
            self.hours.add(hour)

    def file(self, hour: datetime) -> Path:
        """Where the lines of `hour` are."""
        return self.folder / _name(hour)
