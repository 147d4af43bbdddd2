"""The drop folder: where producers land files, and how a consumer knows that a folder is complete: Readiness Marker.

    <landing>/visits/date=2026-01-31/hour=07/part-00000.json    JSON lines, one record or one unusable line each
    <landing>/visits/date=2026-01-31/hour=07/_SUCCESS           written last: the folder is complete
    <landing>/devices/devices.json, _SUCCESS                    the provider's latest full dump

An hour's folder holds what *arrived* in that hour (UTC); a late record lies in the folder of its arrival and has an
earlier event time.

Order of a publication: the new files are complete under hidden names (leading `_`), then the marker of the previous
attempt is removed, then files are renamed into place, files that are no longer part of the folder are removed, and
the marker is written. A producer killed at any point leaves a folder without a marker, or the previous complete one.
Publishing the same bytes again touches nothing. One producer at a time may publish a folder.
"""

from __future__ import annotations

import filecmp
import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Literal

from de_resources.delta.write.lock import commit_lock
from de_resources.errors import PermanentError

MARKER = "_SUCCESS"
PART = "part-00000.json"
VISITS = "visits"
DEVICES = "devices"
_HIDDEN = ("_", ".")
_GROWN = "grown"

STILL_SECONDS = 600.0
"""How long files have to be left alone before a marker that is older than they are, and names none, stands for them."""

Readiness = Literal["marker", "next_hour"]
"""What closes an hour: its own marker, or the arrival of a later hour, for producers that cannot say that they are done."""

Progress = Callable[[int, int], None]
"""Called with what is done and the total, in the unit that the caller's docstring names."""


class NotAFullHourError(PermanentError):
    """An hour folder was asked for a moment that is not a full hour with a time zone."""

    def __init__(self, moment: datetime) -> None:
        self.moment = moment
        super().__init__(
            f"`{moment.isoformat()}` is not a full hour with a time zone: pass e.g. `2026-01-31T07:00:00+00:00`."
        )


def full_hour(moment: datetime) -> datetime:
    """Return `moment` in UTC; raise `NotAFullHourError` when it has no time zone or is not a full hour there."""
    if moment.tzinfo is None:
        raise NotAFullHourError(moment)
    utc = moment.astimezone(UTC)
    if (utc.minute, utc.second, utc.microsecond) != (0, 0, 0):
        raise NotAFullHourError(moment)
    return utc


def hour_folder(landing: Path, hour: datetime, dataset: str = VISITS) -> Path:
    """Folder of what arrived in `hour`; it need not exist."""
    utc = full_hour(hour)
    return landing / dataset / f"date={utc.date().isoformat()}" / f"hour={utc.hour:02}"


Fact = tuple[str, int, int]
"""A file's name, its size, and when it was changed (nanoseconds)."""


@dataclass(frozen=True)
class Contents:
    """What one look into a folder found: its visible files by name, its marker, and what that says."""

    files: tuple[Fact, ...] = ()
    marker: Fact | None = None
    said: str = ""
    is_still: bool = True
    """No file is younger than the marker and was written to within `STILL_SECONDS`."""

    @property
    def is_ready(self) -> bool:
        """Whether the folder is complete: its marker is there, and the files that it stands for.

        A marker that names files and sizes, as `publish` writes it, stands for these: one that is left from an earlier attempt
        of a folder that is being rewritten is no marker. One that names nothing is taken at its word when the files are still.
        """
        if self.marker is None:
            return False
        covered = self._covered
        if covered is None:
            return self.is_still
        return covered.items() <= {name: size for name, size, _ in self.files}.items()

    @property
    def published(self) -> tuple[str, ...]:
        """Names of the files that a reader reads: those that the marker names, or all where it names none.

        What came later is not of this publication; a change of the folder tells of it.
        """
        covered = self._covered
        return tuple(name for name, _, _ in self.files if covered is None or name in covered)

    @property
    def _covered(self) -> Mapping[str, int] | None:
        try:
            return dict(json.loads(self.said)["files"])
        except (ValueError, KeyError, TypeError):
            return None

    @property
    def has_grown(self) -> bool:
        """Whether the last publication only added to the folder, and says so."""
        try:
            return self.is_ready and json.loads(self.said)[_GROWN] is True
        except (ValueError, KeyError, TypeError):
            return False


def contents_of(folder: Path, now: datetime | None = None) -> Contents | None:
    """Look into a folder, by one listing of it. Nothing is in one that is not there; None: it changed at that moment.

    `now` (the clock's) tells which files were written to a moment ago.
    """
    facts: dict[str, Fact] = {}
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_file() and (entry.name == MARKER or not entry.name.startswith(_HIDDEN)):
                    stat = entry.stat()
                    facts[entry.name] = (entry.name, stat.st_size, stat.st_mtime_ns)
    except NotADirectoryError:
        return Contents()
    except FileNotFoundError:
        return None if facts or folder.exists() else Contents()
    marker = facts.pop(MARKER, None)
    files = tuple(fact for _, fact in sorted(facts.items()))
    try:
        said = (folder / MARKER).read_text(errors="replace") if marker else ""
    except FileNotFoundError:
        return None
    return Contents(files, marker, said, _is_still(files, marker, now or datetime.now(UTC)))


def _is_still(files: Iterable[Fact], marker: Fact | None, now: datetime) -> bool:
    # Copies of a folder have their files in any order of age: only what is being written is a sign of a rewrite.
    fresh = (now.timestamp() - STILL_SECONDS) * 1e9
    return all(changed <= max(marker[2] if marker else 0, fresh) for _, _, changed in files)


def is_ready(folder: Path) -> bool:
    """Whether the folder is complete, as `Contents.is_ready` says."""
    contents = contents_of(folder)
    return contents is not None and contents.is_ready


def folder_look(folder: Path) -> str | None:
    """A fingerprint of a complete folder: names, sizes and times of its files and its marker. None while it is incomplete."""
    contents = contents_of(folder)
    if contents is None or not contents.is_ready:
        return None
    return hashlib.blake2b(repr([*contents.files, contents.marker]).encode(), digest_size=6).hexdigest()


def _sizes(files: Iterable[Path]) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in files}


def hour_of(folder: Path) -> datetime | None:
    """The hour that a folder `date=…/hour=…` is named after, or None."""
    try:
        return datetime.strptime(f"{folder.parts[-2]} {folder.parts[-1]} +0000", "date=%Y-%m-%d hour=%H %z")
    except ValueError:
        return None


def data_files(folder: Path) -> list[Path]:
    """Visible files of a folder, by name: neither the marker nor what a running publication hides."""
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if path.is_file() and not path.name.startswith(_HIDDEN))


@contextmanager
def incoming(landing: Path) -> Iterator[Path]:
    """A hidden folder on the landing's own file system to prepare files in, removed at the end, also after an error.

    A process killed by force leaves its `_incoming-…` folder, which no reader looks at and anybody may remove.
    """
    landing.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="_incoming-", dir=landing) as name:
        yield Path(name)


@contextmanager
def landing_alone(landing: Path, dataset: str = VISITS) -> Iterator[None]:
    """Be the only one who merges into the dataset's folders. Raises `TableBusy` after a minute."""
    with commit_lock(str(landing / dataset), table=f"landing/{dataset}", shared=False, timeout=60):
        yield


def set_aside(landing: Path, dataset: str = VISITS) -> Path | None:
    """Hide all of a dataset's folders from readers, and keep them; where they are now, or None where there were none."""
    folder = landing / dataset
    if not folder.exists():
        return None
    names = (landing / f"_{dataset}-{number}" for number in count(1))
    aside = next(name for name in names if not name.exists())
    return folder.rename(aside)


def publish(folder: Path, files: Mapping[str, Path], *, grown: bool = False) -> bool:
    """Make `folder` hold exactly `files` (name to prepared file, on the same file system) and its marker.

    The prepared files are moved. Returns False, and leaves the folder untouched, when it is complete with the same
    bytes already. `grown` tells readers that all that the folder held is still in it, and keeps its other files: a reader may
    take such a folder in again without asking anybody.
    """
    if is_ready(folder) and _same(folder, files, others_stay=grown):
        return False
    for prepared in files.values():
        flush(prepared)
    folder.mkdir(parents=True, exist_ok=True)
    marker = folder / MARKER
    marker.unlink(missing_ok=True)
    for name, prepared in files.items():
        prepared.replace(folder / name)
    for old in data_files(folder):
        if old.name not in files and not grown:
            old.unlink()
    prepared_marker = folder / f"{MARKER}.incoming"
    prepared_marker.write_text(json.dumps({"files": _sizes(data_files(folder)), **({_GROWN: True} if grown else {})}))
    prepared_marker.replace(marker)
    return True


def flush(path: Path) -> None:
    """Have the file on the disk, so that not even a power failure leaves a marker beside a file without its bytes."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _same(folder: Path, files: Mapping[str, Path], *, others_stay: bool) -> bool:
    """Whether the folder's visible files are the prepared ones, byte by byte."""
    there = {path.name for path in data_files(folder)}
    if not (there >= set(files) if others_stay else there == set(files)):
        return False
    return all(filecmp.cmp(prepared, folder / name, shallow=False) for name, prepared in files.items())


def write_lines(path: Path, chunks: Iterable[bytes]) -> int:
    """Write chunks (whole lines, each ending in a line feed); returns the bytes written."""
    with path.open("wb") as out:
        return sum(out.write(chunk) for chunk in chunks)


def rejected_line(raw: str, reason: str, line: int, file: str) -> bytes:
    """The envelope in which a producer lands a line that it could not turn into a record, ending in a line feed.

    `line` counts from 1 within `file`, which is a name without folders.
    """
    envelope = {"rejected": {"raw": raw, "reason": reason, "line": line, "file": file}}
    return json.dumps(envelope).encode() + b"\n"
