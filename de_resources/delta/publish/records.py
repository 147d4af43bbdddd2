"""The verdicts on staged versions, one small file each, beside the staged table's log.

Files and not commits: runs of several keys stage at once through one engine, which arbitrates among its own commits only.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from de_resources.delta.publish.staging import Key, staging_of
from de_resources.delta.publish.verdicts import Judged, from_texts, keyed_texts
from de_resources.delta.table import CommitInfo, Table
from de_resources.delta.write.lock import local_folder
from de_resources.errors import PermanentError

FOLDER = "_verdicts"


@dataclass(frozen=True)
class VerdictRecord:
    """The verdicts of one run on what it staged, by the text of the key; `stream`: the keys are windows of a stream."""

    version: int
    writer: str
    slice: str
    origin: str
    keys: Mapping[str, Judged]
    stream: bool = False


def record(
    table: Table, stamp: CommitInfo, version: int, verdicts: Mapping[Key, Judged], *, stream: bool = False
) -> None:
    """Keep the verdicts on a staged version, where a key's verdict replaces the one before.

    The file is there as a whole or not at all.
    """
    folder = _folder(table)
    folder.mkdir(parents=True, exist_ok=True)
    place = folder / f"{version:020}.json"
    # Windows of a stream end while the clock goes on and nothing is staged: verdicts on one version may come in turns.
    before = json.loads(place.read_text())["keys"] if place.exists() else {}
    told = {
        "version": version,
        "writer": stamp.writer,
        "slice": stamp.slice,
        "origin": stamp.origin,
        "keys": {**before, **keyed_texts(verdicts)},
        "stream": stream,
    }
    _put(place, told)


def records(table: Table) -> Iterator[VerdictRecord]:
    """All that are kept, newest first."""
    for path in sorted(_folder(table).glob("*.json"), reverse=True):
        told = json.loads(path.read_text())
        yield VerdictRecord(**{**told, "keys": from_texts(told["keys"])})


def accept(table: Table, key: str, version: int) -> None:
    """Remember of a stream's window that a person has accepted what its audits found. Of partitions the log alone tells it."""
    place = _folder(table) / f"{version:020}.json"
    told = json.loads(place.read_text())
    if told.get("stream"):
        for finding in told["keys"][key]["findings"]:
            finding["reaction"] = "annotate"
        _put(place, told)


def newest_verdicts(table: Table, *, held: bool | None = None) -> dict[str, int]:
    """The staged version in which a window was judged last; with `held` only where that verdict holds it, or does not."""
    return {key: judged_in for key, (judged_in, judged) in judged_windows(table).items() if held in (None, judged.held)}


def judged_windows(table: Table) -> dict[str, tuple[int, Judged]]:
    """The newest verdict on each window of a stream, and the staged version in which it was given."""
    newest: dict[str, tuple[int, Judged]] = {}
    for found in (each for each in records(table) if each.stream):
        for key, judged in found.keys.items():
            newest.setdefault(key, (found.version, judged))
    return newest


def forget(table: Table, known: Mapping[int, object]) -> None:
    """Remove the verdicts on staged versions that are not known any more. The newest verdict on each window stays."""
    newest = set(newest_verdicts(table).values())
    for path in _folder(table).glob("*.json"):
        if int(path.stem) not in newest.union(known):
            path.unlink(missing_ok=True)


def _put(place: Path, told: Mapping[str, Any]) -> None:
    """There as a whole or not at all."""
    draft = place.with_name(f".{uuid4().hex}")
    draft.write_text(json.dumps(told))
    draft.replace(place)


def _folder(table: Table) -> Path:
    folder = local_folder(staging_of(table).uri)
    if folder is None:
        raise PermanentError(f"`{table.name}` lies in an object store: the verdicts on it have no place there.")
    return folder / FOLDER
