"""What a person decides about staged slices: publish one that was held, or go back to one that was published before.

Neither computes nor copies anything, and neither starts an engine. Each is a commit to the readers' table that says who
decided and why. A rerun finds that readers see it already, and commits nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from de_resources.delta.log import TableLog
from de_resources.delta.publish.live_files import staged_as_of
from de_resources.delta.publish.publication import By, Publication, Shown, publications, publish, published_now
from de_resources.delta.publish.records import accept, newest_verdicts, records
from de_resources.delta.publish.staging import STAGES, WHOLE, Key, keys_of, staging_of
from de_resources.delta.publish.verdicts import Judged
from de_resources.delta.slices import Slice
from de_resources.delta.table import CommitInfo, Table, TableMissing
from de_resources.delta.write.lock import commit_lock
from de_resources.errors import PermanentError

HISTORY = 2000
"""How many commits of the staged table are looked at."""


class NoReason(PermanentError):
    """A decision without a reason."""

    def __init__(self, table: str) -> None:
        self.table = table
        super().__init__(f"Say why, in words that others understand later: it is kept in the log of `{table}`.")


class NothingStaged(PermanentError):
    """A key of which nothing waits to be published."""

    def __init__(self, table: str, key: str, why: str) -> None:
        self.table, self.key, self.why = table, key, why
        super().__init__(f"`{table}` has nothing to publish for {key}: {why}. Readers see what they saw.")


class NoEarlierPublication(PermanentError):
    """A key that cannot be taken back, or not to this version."""

    def __init__(self, table: str, key: str, asked: int | None, known: list[int]) -> None:
        self.table, self.key, self.asked, self.known = table, key, asked, tuple(known)
        what = (
            "no publication before the one that readers see" if asked is None else f"no publication in version {asked}"
        )
        versions = ", ".join(map(str, known)) or "none"
        super().__init__(f"`{table}` has {what} for {key}. Its publications are in the versions: {versions}.")


@dataclass(frozen=True)
class Waiting:
    """A staged slice that readers do not see. `judged` is None where its run died before the audits had judged."""

    key: str
    staged: int | None
    judged: Judged | None

    def told(self) -> str:
        """Why it waits."""
        return self.judged.told() if self.judged else "its run died before it was judged; run the partition again"


def waiting(table: Table) -> list[Waiting]:
    """What is staged and not published, in the order of the keys."""
    published = {
        (key, judged.staged) for publication in publications(table.log()) for key, judged in publication.keys.items()
    }
    return [found for found in _newest(table) if (found.key, found.staged) not in published]


def publish_held(table: Table, slice_: Slice | None, stamp: CommitInfo, *, reason: str) -> tuple[Shown, Judged]:
    """Publish the newest staged slice of one key, whatever the audits said of it. The reason is kept in the commit.

    Raises `NoReason`, `NothingStaged`, and what `publish` raises: rows that the table's own constraints forbid stay held.
    """
    (key,) = keys_of(slice_)
    _require_reason(table, reason)
    with commit_lock(table.uri, table=table.name, shared=True, timeout=60):
        found = next((w for w in _newest(table) if w.key == _text(key)), None)
        if found is None:
            raise NothingStaged(table.name, _text(key), "nothing was staged, or the log has forgotten it")
        if found.judged is None or found.staged is None:
            why = found.told() if found.judged is None else "an audit of the input let nothing be computed"
            raise NothingStaged(table.name, _text(key), why)
        shown = _show(table, slice_, key, found.judged, stamp, reason, "person")
        accept(table, _text(key), found.staged)
        return shown, found.judged


def roll_back(
    table: Table, slice_: Slice | None, stamp: CommitInfo, *, reason: str, version: int | None = None
) -> tuple[Shown, Judged]:
    """Show again what was published of one key in `version` of the table; None: what was there before what is there now.

    The rows are those that the publication showed, also where the table was compacted since. Raises `NoReason`,
    `NoEarlierPublication`, which names the versions, and `StagedGone` where its files were removed meanwhile.
    """
    (key,) = keys_of(slice_)
    _require_reason(table, reason)
    with commit_lock(table.uri, table=table.name, shared=True, timeout=60):
        log = table.log()
        if log is None:
            raise TableMissing(table.name)
        target = _target(table, log, key, version)
        judged = target.keys[_text(key)]
        return _show(table, slice_, key, judged, stamp, reason, "rollback"), judged


def _target(table: Table, log: TableLog, key: Key, version: int | None) -> Publication:
    text = _text(key)
    known = [p for p in publications(log) if text in p.keys]
    now = published_now(log, key)
    seen = now.keys[text].staged if now else None
    earlier = [p for p in known if seen is not None and (p.keys[text].staged or 0) < seen]
    # After a rollback the one before is the one before what is shown, and not the one that was taken back.
    newest = max(earlier, key=lambda p: (p.keys[text].staged or 0, p.version), default=None)
    found = newest if version is None else next((p for p in known if p.version == version), None)
    if found is None:
        raise NoEarlierPublication(table.name, text, version, sorted(p.version for p in known))
    return found


def _show(
    table: Table, slice_: Slice | None, key: Key, judged: Judged, stamp: CommitInfo, reason: str, by: By
) -> Shown:
    assert judged.staged is not None  # noqa: S101 - only what is staged gets here
    slices = staged_as_of(table, judged.staged, slice_)
    return publish(table, slice_, slices, {key: judged}, stamp, by=by, reason=reason)


def _newest(table: Table) -> Iterator[Waiting]:
    """The newest staged version of each key, with the verdict on it."""
    log = staging_of(table).log()
    judged = {(key, found.version): each for found in records(table) for key, each in found.keys.items()} if log else {}
    newest: dict[str, Waiting] = {}
    for commit in log.commits(HISTORY) if log else ():
        for key in commit.stamp.get(STAGES, ()):
            newest.setdefault(key, Waiting(key, commit.version, judged.get((key, commit.version))))
    # The commits of a stream do not say which windows they stage; the verdicts on these do.
    for key, version in newest_verdicts(table, held=True).items() if log else ():
        newest[key] = Waiting(key, version, judged[key, version])
    yield from sorted(newest.values(), key=lambda found: found.key)


def _require_reason(table: Table, reason: str) -> None:
    if not reason.strip():
        raise NoReason(table.name)


def _text(key: Key) -> str:
    return WHOLE if key is None else key
