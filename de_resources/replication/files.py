"""Files from folder to folder, byte by byte. Pattern: Passthrough Replicator, and Full Loader in its file-to-file flavour.

Nothing is parsed, so that `1.10` stays `1.10`, and odd dates, line ends, byte order marks and bytes that are no UTF-8
stay what they are. The replica equals the source: what vanished there is removed here.

A folder is complete when it holds its marker. Order of a synchronisation: changed files are staged under hidden names,
the source is looked at again, then the replica's marker is removed, the files get their names, vanished ones are
removed, and the marker comes last. A process killed at any point leaves the previous replica, or one without a marker
that the next run completes. Without a change at the source nothing is touched.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from de_resources import atomic_files
from de_resources.delta.write.lock import commit_lock
from de_resources.errors import PermanentError, TransientError
from de_resources.replication.environments import require_apart

MARKER = "_SUCCESS"


class FolderMissing(PermanentError):
    """The source folder of a replica does not exist."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        super().__init__(
            f"The source folder `{folder}` does not exist. The replica stays as it is. Look for the producer, or for "
            "the file system that is not mounted."
        )


class FolderIncomplete(TransientError):
    """The source folder lacks the marker that its producer writes last."""

    def __init__(self, folder: Path, marker: str) -> None:
        self.folder, self.marker = folder, marker
        super().__init__(
            f"The source folder `{folder}` is not complete: it has no `{marker}`. The replica stays as it is. Wait for "
            "the producer, then run again."
        )


class FolderEmpty(PermanentError):
    """The source folder is marked as complete and holds no file: replicating it would empty the replica."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        super().__init__(
            f"The source folder `{folder}` is complete and holds no file, which would empty the replica. The replica "
            "stays as it is. If the source is meant to be empty, remove the replica by hand."
        )


class SourceChanged(TransientError):
    """The producer changed the source while it was copied."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        super().__init__(
            f"The source folder `{folder}` changed while it was copied. The replica stays as it is. Run again when its "
            "producer has finished."
        )


@dataclass(frozen=True)
class Synchronised:
    """What a synchronisation did. `digests` are the SHA-256 of all files of the replica, by name within the folder."""

    digests: Mapping[str, str]
    copied: tuple[str, ...]
    removed: tuple[str, ...]
    bytes_copied: int


def data_files(folder: Path) -> dict[str, Path]:
    """The folder's files by their names within it, sub-folders included. Names with a leading `_` or `.` are hidden."""
    paths = (path for path in sorted(folder.rglob("*")) if path.is_file())
    named = {path.relative_to(folder).as_posix(): path for path in paths}
    return {name: path for name, path in named.items() if not any(p.startswith(("_", ".")) for p in name.split("/"))}


def digests(folder: Path) -> dict[str, str]:
    """The SHA-256 of every file by its name within the folder; reads them all, in pieces."""
    return {name: atomic_files.sha256(path) for name, path in data_files(folder).items()}


def synchronise(source: Path, target: Path, *, marker: str = MARKER) -> Synchronised:
    """Make `target` hold exactly the files of `source`, byte by byte, and its marker.

    Both sides are read once to compare them. One synchronisation at a time: a second one waits. A rerun of an unchanged
    source copies nothing.

    Raises `FolderMissing`, `FolderIncomplete`, `FolderEmpty`, `SourceChanged`, `EnvironmentsOverlap`; the replica is then
    as it was.
    """
    require_apart([str(source)], str(target))
    with commit_lock(str(target), table=target.name, shared=False):
        files = _complete(source, marker)
        target.mkdir(parents=True, exist_ok=True)
        atomic_files.discard_staged(target)
        old = digests(target)
        try:
            look = _look(source, marker)
            new = {name: _stage_changed(path, target / name, old.get(name)) for name, path in files.items()}
            unchanged = _look(source, marker) == look
        except FileNotFoundError:
            unchanged = False
        if not unchanged:
            atomic_files.discard_staged(target)
            raise SourceChanged(source)
        return _publish(source, target, marker, old, new)


def _complete(source: Path, marker: str) -> dict[str, Path]:
    if not source.is_dir():
        raise FolderMissing(source)
    if not (source / marker).is_file():
        raise FolderIncomplete(source, marker)
    files = data_files(source)
    if not files:
        raise FolderEmpty(source)
    return files


def _look(source: Path, marker: str) -> list[tuple[str, int, int]]:
    """What changes when the producer touches the folder; a marker that was replaced counts."""
    paths = [*data_files(source).items(), (marker, source / marker)]
    return [(name, stat.st_size, stat.st_mtime_ns) for name, path in paths for stat in (path.stat(),)]


def _stage_changed(source: Path, target: Path, old: str | None) -> str:
    """Stage the file unless the replica has its bytes; its digest."""
    if old is not None and target.stat().st_size == source.stat().st_size:
        digest = atomic_files.sha256(source)
        if digest == old:
            return digest
    return atomic_files.stage(source, target)


def _publish(source: Path, target: Path, marker: str, old: Mapping[str, str], new: Mapping[str, str]) -> Synchronised:
    copied = tuple(name for name, digest in new.items() if old.get(name) != digest)
    removed = tuple(name for name in old if name not in new)
    if copied or removed:
        (target / marker).unlink(missing_ok=True)
    for name in copied:
        atomic_files.publish(target / name)
    for name in removed:
        (target / name).unlink()
    if copied or removed or not (target / marker).is_file():
        atomic_files.copy(source / marker, target / marker)
    return Synchronised(new, copied, removed, sum((target / name).stat().st_size for name in copied))
