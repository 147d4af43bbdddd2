"""The files of a Delta table in a folder, as the protocol names them: commits, checkpoints, and what they refer to.

Source: Delta's PROTOCOL.md, "Delta Log Entries", "Checkpoints" and "Deletion Vector Descriptor Schema".
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from uuid import UUID

import pyarrow.parquet as pq

from de_resources.errors import PermanentError, TransientError

LOG = "_delta_log"
LAST_CHECKPOINT = "_last_checkpoint"

_COMMIT = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(?:\.\d{10}\.(\d{10}))?\.parquet")
_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


class FilesElsewhere(PermanentError):
    """A table that refers to files outside its folder, as a shallow clone does."""

    def __init__(self, table: Path, path: str) -> None:
        self.table, self.path = table, path
        super().__init__(
            f"The table `{table}` refers to `{path}`, which is no file inside its folder, as shallow clones do. It cannot "
            "be replicated with its log. Make it a deep copy first."
        )


class LogGap(PermanentError):
    """A log from which a version cannot be built."""

    def __init__(self, table: Path, version: int) -> None:
        self.table, self.version = table, version
        super().__init__(
            f"The log of `{table}` lacks what is needed to build version {version}: a commit is missing and there is no "
            "checkpoint in Parquet to start from. Restore the log, or write a classic checkpoint."
        )


class LogChanged(TransientError):
    """The source's log was cleaned up while it was read."""

    def __init__(self, table: Path) -> None:
        self.table = table
        super().__init__(f"The log of `{table}` was cleaned up while it was read. The replica is whole; run again.")


@dataclass(frozen=True)
class DeltaLog:
    """What a table's log folder held when it was listed. Commits and checkpoints never change, they only go."""

    table: Path
    commits: Mapping[int, Path]
    checkpoints: Mapping[int, tuple[Path, ...]]

    @classmethod
    def read(cls, table: Path) -> DeltaLog | None:
        """List the log; None where there is none."""
        folder = table / LOG
        names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
        commits = {int(m[1]): folder / m[0] for name in names if (m := _COMMIT.fullmatch(name))}
        parts: dict[int, list[tuple[Path, int]]] = {}
        for match in filter(None, map(_CHECKPOINT.fullmatch, names)):
            parts.setdefault(int(match[1]), []).append((folder / match[0], int(match[2] or 1)))
        # A checkpoint in parts counts when all of them are there.
        whole = {v: tuple(path for path, _ in each) for v, each in parts.items() if len(each) == each[0][1]}
        return cls(table, commits, whole) if commits or whole else None

    @property
    def version(self) -> int:
        """The newest version."""
        return max([*self.commits, *self.checkpoints])

    def base(self) -> int | None:
        """The checkpoint with which the log begins, where its first commits were cleaned up; None: it begins at 0."""
        if 0 in self.commits:
            return None
        return min((v for v in self.checkpoints), default=None)

    def actions(self, version: int) -> list[dict[str, Any]]:
        """The actions of one commit. Raises `LogChanged` when it is gone by now."""
        try:
            return [json.loads(line) for line in self.commits[version].read_text().splitlines() if line.strip()]
        except FileNotFoundError:
            raise LogChanged(self.table) from None

    def files(self, version: int) -> set[str]:
        """Names of the files that a commit brought: data, change data, deletion vectors."""
        actions = [(a.get(kind) or {}) for a in self.actions(version) for kind in ("add", "cdc")]
        return {name for action in actions for name in self._names(action)}

    def live_files(self, version: int) -> set[str]:
        """Names of the files that a reader of the version needs. Raises `LogGap`."""
        start = max((v for v in self.checkpoints if v <= version), default=-1)
        live = {_identity(add): add for add in self._checkpoint_adds(start)} if start >= 0 else {}
        for each in range(start + 1, version + 1):
            if each not in self.commits:
                raise LogGap(self.table, version)
            for action in self.actions(each):
                # A commit may remove a file and add it again with another deletion vector.
                if remove := action.get("remove"):
                    live.pop(_identity(remove), None)
                if add := action.get("add"):
                    live[_identity(add)] = add
        return {name for add in live.values() for name in self._names(add)}

    def _checkpoint_adds(self, version: int) -> Iterator[Mapping[str, Any]]:
        try:
            for part in self.checkpoints[version]:
                for row in pq.read_table(part, columns=["add"])["add"].to_pylist():
                    if row is not None and row["path"] is not None:
                        yield row
        except FileNotFoundError:
            raise LogChanged(self.table) from None

    def _names(self, action: Mapping[str, Any]) -> Iterator[str]:
        if "path" in action:
            yield self._inside(unquote(action["path"]))
        vector = action.get("deletionVector")
        if vector and vector["storageType"] == "u":
            yield _vector_file(vector["pathOrInlineDv"])
        elif vector and vector["storageType"] == "p":
            raise FilesElsewhere(self.table, vector["pathOrInlineDv"])

    def _inside(self, name: str) -> str:
        if "://" in name or name.startswith(("/", "file:")) or ".." in name.split("/"):
            raise FilesElsewhere(self.table, name)
        return name


def _identity(action: Mapping[str, Any]) -> tuple[str, str | None]:
    """What identifies a logical file: its path and its deletion vector."""
    vector = action.get("deletionVector")
    return action["path"], f"{vector['pathOrInlineDv']}@{vector.get('offset')}" if vector else None


def _vector_file(encoded: str) -> str:
    """The file of a deletion vector from its descriptor: a folder's random prefix, then 20 characters for a UUID."""
    prefix, name = encoded[:-20], encoded[-20:]
    return f"{prefix}/deletion_vector_{UUID(bytes=_z85(name))}.bin".removeprefix("/")


def _z85(text: str) -> bytes:
    """Decode Z85, the base-85 of ZeroMQ, which Python's standard library has from 3.13 on."""
    groups = (text[i : i + 5] for i in range(0, len(text), 5))
    numbers = (sum(_Z85.index(c) * 85**p for p, c in enumerate(reversed(group))) for group in groups)
    return b"".join(number.to_bytes(4, "big") for number in numbers)
