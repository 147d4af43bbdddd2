"""Copying one file so that its name never stands for half of it: beside the target under a hidden name, then renamed."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

_CHUNK = 1 << 20
_SUFFIX = ".incoming"


def stage(source: Path, target: Path) -> str:
    """Copy the bytes beside `target` under a hidden name, on the disk when this returns; the SHA-256 of what was read."""
    digest = hashlib.sha256()
    target.parent.mkdir(parents=True, exist_ok=True)
    with source.open("rb") as read, staged(target).open("wb") as write:
        while chunk := read.read(_CHUNK):
            digest.update(chunk)
            write.write(chunk)
        write.flush()
        os.fsync(write.fileno())
    return digest.hexdigest()


def publish(target: Path) -> None:
    """Give the staged copy its name, in one step; a file of that name is replaced."""
    staged(target).replace(target)


def copy(source: Path, target: Path) -> str:
    """`stage` and `publish`; returns the SHA-256."""
    digest = stage(source, target)
    publish(target)
    return digest


def discard_staged(folder: Path) -> None:
    """Remove what a killed run staged anywhere below the folder. For the only writer of the folder."""
    for leftover in folder.rglob(f".*{_SUFFIX}"):
        leftover.unlink(missing_ok=True)


def sha256(path: Path) -> str:
    """The SHA-256 of a file, read in pieces."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def staged(target: Path) -> Path:
    """The hidden name under which a copy waits."""
    return target.with_name(f".{target.name}{_SUFFIX}")
