"""The jars of the engine and of the broker: fetched once, verified against the lock file, used offline ever after.

A set lives in `Settings.jars/<set>` and is there completely or not at all: it is downloaded beside, verified by
SHA-256, sealed with a marker that names the lock's content, and renamed into place. A rerun with an intact set touches
nothing; a changed lock replaces the set; an interrupted download goes on where it stopped. Processes wait for each
other.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock

from de_resources.atomic_files import sha256
from de_resources.errors import PermanentError
from de_resources.local.ivy import retrieve
from de_resources.local.jars_lock import LOCK_FILE, LockedJar, read_lock
from de_resources.settings import Settings

if TYPE_CHECKING:
    from rich.console import Console

SETS = ("engine", "broker")
_MARKER = ".complete"


class JarsMissing(PermanentError):
    """A set of jars was not fetched yet."""

    def __init__(self, jar_set: str, folder: Path) -> None:
        self.jar_set = jar_set
        self.folder = folder
        super().__init__(f"The {jar_set} jars are not in `{folder}`: run `de jars` once with a network.")


class JarCorrupt(PermanentError):
    """A downloaded jar is not the one the lock file names."""

    def __init__(self, jar: LockedJar, actual: str | None) -> None:
        self.jar = jar
        self.actual = actual
        found = "was not downloaded" if actual is None else f"has SHA-256 {actual}"
        super().__init__(
            f"`{jar.coordinate}` {found}, the lock file wants {jar.sha256}: do not use it. Check which repository or "
            "mirror answered, then try again; after a wanted change of version run "
            "`python -m de_resources.local.jars_lock`."
        )


def engine_jars(settings: Settings) -> list[Path]:
    """What Spark loads beside its own jars: Delta, the Kafka source, the PostgreSQL driver. No network, no hashing.

    Raises:
        JarsMissing: `ensure_jars` has not run yet, or the lock file changed since.
    """
    return _jars_of(settings, "engine")


def broker_jars(settings: Settings) -> list[Path]:
    """The class path of the Kafka broker.

    Raises:
        JarsMissing: `ensure_jars` has not run yet, or the lock file changed since.
    """
    return _jars_of(settings, "broker")


def ensure_jars(
    settings: Settings, sets: Iterable[str] = SETS, *, console: Console | None = None, lock: Path = LOCK_FILE
) -> dict[str, list[Path]]:
    """Fetch the sets that are absent, with a progress display, and return the jars of all that were asked for.

    `lock` names them; sets of another lock file are wanted in a folder of their own (`Settings.jars`).

    Raises:
        IvyFailed: something could not be downloaded; what was fetched is kept for the next call.
        JarCorrupt: a file differs from the lock file; nothing of that set is put into place.
        JavaMissing: there is no Java to download with.
    """
    wanted = tuple(sets)
    if not all(_is_complete(settings, jar_set, lock) for jar_set in wanted):
        settings.jars.mkdir(parents=True, exist_ok=True)
        with FileLock(settings.jars / ".lock"):
            _fetch([s for s in wanted if not _is_complete(settings, s, lock)], settings, console, lock)
    return {jar_set: _jars_of(settings, jar_set, lock) for jar_set in wanted}


def _fetch(absent: list[str], settings: Settings, console: Console | None, lock: Path) -> None:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console or Console(stderr=True)) as progress, ThreadPoolExecutor() as pool:
        running = []
        for jar_set in absent:
            bar = progress.add_task(f"Fetching the {jar_set} jars", total=len(_locked(jar_set, lock)))
            running.append(pool.submit(_install, settings, jar_set, partial(progress.advance, bar), lock))
        for future in running:
            future.result()


def _install(settings: Settings, jar_set: str, on_download: Callable[[], None], lock: Path) -> None:
    """Download, verify, seal, rename: in this order, so that the set's folder never holds an unverified jar."""
    work = settings.jars / f".{jar_set}.partial"
    fetched, locked = work / "jars", _locked(jar_set, lock)
    retrieve(jar_set, [jar.coordinate for jar in locked], fetched, work / "cache", on_download=on_download)
    for jar in locked:
        _verify(jar, fetched / jar.coordinate.file_name)
    (fetched / _MARKER).write_text(_digest(jar_set, lock))
    shutil.rmtree(settings.jars / jar_set, ignore_errors=True)
    fetched.rename(settings.jars / jar_set)
    shutil.rmtree(work)


def _verify(jar: LockedJar, path: Path) -> None:
    actual = sha256(path) if path.exists() else None
    if actual != jar.sha256:
        # Also the cached copy has to go, or the next call would only verify the same bytes again.
        shutil.rmtree(path.parent.parent)
        raise JarCorrupt(jar, actual)


def _jars_of(settings: Settings, jar_set: str, lock: Path = LOCK_FILE) -> list[Path]:
    folder = settings.jars / jar_set
    if not _is_complete(settings, jar_set, lock):
        raise JarsMissing(jar_set, folder)
    return [folder / jar.coordinate.file_name for jar in _locked(jar_set, lock)]


def _is_complete(settings: Settings, jar_set: str, lock: Path) -> bool:
    folder = settings.jars / jar_set
    marker = folder / _MARKER
    if not marker.exists() or marker.read_text() != _digest(jar_set, lock):
        return False
    return all((folder / jar.coordinate.file_name).exists() for jar in _locked(jar_set, lock))


def _locked(jar_set: str, lock: Path) -> list[LockedJar]:
    return [jar for jar in read_lock(lock) if jar.jar_set == jar_set]


def _digest(jar_set: str, lock: Path) -> str:
    jars = (f"{jar.coordinate} {jar.sha256}" for jar in _locked(jar_set, lock))
    return hashlib.sha256("\n".join(jars).encode()).hexdigest()
