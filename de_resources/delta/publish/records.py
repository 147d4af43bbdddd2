"""The verdicts on staged versions, one small file each, beside the staged table's log.

Files and not commits: runs of several keys stage at once through one engine, which arbitrates among its own commits only.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from de_resources.delta.publish.staging import Key, staging_of
from de_resources.delta.publish.verdicts import Judged, from_texts, keyed_texts
from de_resources.delta.table import CommitInfo, Table
from de_resources.delta.write.lock import local_folder
from de_resources.errors import PermanentError

FOLDER = "_verdicts"


@dataclass(frozen=True)
class Record:
    """The verdicts of one run on what it staged, by the text of the key."""

    version: int
    writer: str
    slice: str
    origin: str
    keys: Mapping[str, Judged]


def record(table: Table, stamp: CommitInfo, version: int, verdicts: Mapping[Key, Judged]) -> None:
    """Keep the verdicts on a staged version. The file is there as a whole or not at all; the same again replaces it."""
    folder = _folder(table)
    folder.mkdir(parents=True, exist_ok=True)
    told = {
        "version": version,
        "writer": stamp.writer,
        "slice": stamp.slice,
        "origin": stamp.origin,
        "keys": keyed_texts(verdicts),
    }
    draft = folder / f".{uuid4().hex}"
    draft.write_text(json.dumps(told))
    draft.replace(folder / f"{version:020}.json")


def records(table: Table) -> Iterator[Record]:
    """All that are kept, newest first."""
    for path in sorted(_folder(table).glob("*.json"), reverse=True):
        told = json.loads(path.read_text())
        yield Record(**{**told, "keys": from_texts(told["keys"])})


def forget(table: Table, known: Mapping[int, object]) -> None:
    """Remove the verdicts on staged versions that are not known any more."""
    for path in _folder(table).glob("*.json"):
        if int(path.stem) not in known:
            path.unlink(missing_ok=True)


def _folder(table: Table) -> Path:
    folder = local_folder(staging_of(table).uri)
    if folder is None:
        raise PermanentError(f"`{table.name}` lies in an object store: the verdicts on it have no place there.")
    return folder / FOLDER
