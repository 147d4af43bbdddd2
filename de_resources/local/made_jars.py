"""Jars that are made on this machine, beside those that were fetched."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from filelock import FileLock


def made_once(jar: Path, make: Callable[[Path], object], instead_of: Iterable[Path] = ()) -> Path | None:
    """The jar, which `make` writes to the path that it is given where there is none; in the place of those that are named.

    A rerun leaves it alone, for the archive of classes knows it by its time. Two processes that ask at once wait for each
    other. None where it could not be made, which is no error: engines start without it.
    """
    if jar.exists():
        return jar
    try:
        with FileLock(jar.parent / ".lock"), tempfile.TemporaryDirectory(dir=jar.parent) as work:
            return jar if jar.exists() else _made(jar, Path(work) / jar.name, make, instead_of)
    except (OSError, subprocess.SubprocessError):
        return None


def _made(jar: Path, written: Path, make: Callable[[Path], object], instead_of: Iterable[Path]) -> Path:
    make(written)
    for old in instead_of:
        old.unlink()
    return written.rename(jar)
