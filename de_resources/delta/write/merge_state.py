"""Which partitions are in a table, and with which version each came in. Part of *Stateful Merger*.

The state is read from the table's own log, so that it cannot disagree with the table: every commit of a stateful merge
says in its stamp which step it is, after which version it belongs, and which partitions are still to be replayed. A
restore by hand is followed as well. Commits that change no row are passed over; those that others made with rows are
kept in view, since taking the table back would undo them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from de_resources.delta.log import Commit, TableLog
from de_resources.delta.log.versions import HOUSEKEEPING
from de_resources.errors import PermanentError

FACT = "stateful"
"""Under this name a stamp holds `step` (`restore`, `clear` or `merge`), `after` and `replay`."""
AFTER = "stateful/after"
"""Metadata of a materialisation: the partition on which it was merged, `nothing` for the first."""

_NO_ROWS = HOUSEKEEPING | {
    "CREATE TABLE",
    "SET TBLPROPERTIES",
    "UNSET TBLPROPERTIES",
    "UPGRADE PROTOCOL",
    "ADD FEATURE",
    "ADD COLUMNS",
    "CHANGE COLUMN",
    "CHANGE COLUMNS",
    "ADD CONSTRAINT",
    "DROP CONSTRAINT",
    "CLUSTER BY",
    "REORG",
    "COMPUTE STATS",
}


class ReplayFirst(PermanentError):
    """A partition whose predecessors were taken out of the table and have not come back."""

    def __init__(self, table: str, key: str, missing: Sequence[str]) -> None:
        self.table, self.key, self.missing = table, key, tuple(missing)
        shown = ", ".join(f"`{m}`" for m in missing[:10]) + (f" … `{missing[-1]}`" if len(missing) > 10 else "")
        super().__init__(
            f"`{table}` was taken back, and {len(missing)} partition(s) up to `{key}` are not in it again: {shown}. "
            "Nothing was changed. Run these first, in order."
        )


@dataclass(frozen=True)
class MergedPartition:
    """A partition that is in the table: the version that its merge made, and the run that it began with."""

    key: str
    version: int
    origin: str


@dataclass(frozen=True)
class MergeState:
    """What is in a table as of one version.

    `entries` are in the order of the partitions. `replay` are the partitions that were in and were taken back.
    `foreign` are commits of others that changed rows which are still there. `complete`: the log reaches back to the
    table's creation, so that a partition that it does not show was never in.
    """

    version: int = -1
    entries: tuple[MergedPartition, ...] = ()
    replay: tuple[str, ...] = ()
    foreign: tuple[Commit, ...] = ()
    complete: bool = True

    @classmethod
    def of(cls, log: TableLog | None, writer: str) -> MergeState:
        """Follow the log from its oldest commit. `writer` is the asset, as its stamps name it. Reads no data."""
        return cls() if log is None else cls.after(log.commits(log.version + 1)[::-1], writer)

    @classmethod
    def after(cls, commits: Sequence[Commit], writer: str) -> MergeState:
        """What these commits, oldest first, leave in the table."""
        state = cls(complete=commits[0].version == 0)
        known: dict[int, MergeState] = {}
        for commit in commits:
            known[commit.version] = state = replace(_followed(state, commit, writer, known), version=commit.version)
        return state

    @property
    def newest(self) -> MergedPartition | None:
        """The partition that came in last."""
        return self.entries[-1] if self.entries else None

    def split(self, key: str, order: Sequence[str]) -> tuple[tuple[MergedPartition, ...], tuple[MergedPartition, ...]]:
        """The entries before a partition, and those from it on. `order` are all partition keys in their order."""
        rank = _ranks(order)
        later = next((n for n, e in enumerate(self.entries) if rank.get(e.key, -1) >= rank[key]), len(self.entries))
        return self.entries[:later], self.entries[later:]

    def as_of(self, key: str, order: Sequence[str], table: str) -> MergedPartition | None:
        """The newest entry up to a partition, it included: the state after it. None: nothing was in by then.

        A partition that was never in changes nothing. Raises `ReplayFirst` for one that was and is to come back.
        """
        rank = _ranks(order)
        self.require_replayed(table, key, [k for k in order if rank[k] <= rank[key]])
        return next((e for e in reversed(self.entries) if rank.get(e.key, -1) <= rank[key]), None)

    def require_replayed(self, table: str, key: str, keys: Sequence[str]) -> None:
        """Raise `ReplayFirst` where one of the keys awaits its replay."""
        awaited = set(self.replay)
        missing = [k for k in keys if k in awaited]
        if missing:
            raise ReplayFirst(table, key, missing)

    def end_of(self, entry: MergedPartition) -> int:
        """The last version before the next partition came in: same partitions, compacted where they were since."""
        following = (e.version - 1 for e in self.entries if e.version > entry.version)
        return next(following, self.version)


def facts(step: str, after: MergedPartition | None, replay: Iterable[str]) -> dict[str, Any]:
    """What a stamp has to say, so that `MergeState.of` can follow its commit."""
    return {FACT: {"step": step, "after": after.version if after else None, "replay": list(replay)}}


def _followed(state: MergeState, commit: Commit, writer: str, known: Mapping[int, MergeState]) -> MergeState:
    own = commit.stamp.get(FACT) if commit.stamp.get("writer") == writer else None
    if own:
        return _own(state, commit, own, known)
    if commit.operation == "RESTORE":
        return _restored(state, commit, known)
    if commit.operation in _NO_ROWS:
        return state
    return replace(state, foreign=(*state.foreign, commit))


def _own(state: MergeState, commit: Commit, own: Mapping[str, Any], known: Mapping[int, MergeState]) -> MergeState:
    after = -1 if own["after"] is None else own["after"]
    entries = tuple(e for e in state.entries if e.version <= after)
    followed = replace(state, entries=entries, replay=tuple(own["replay"]))
    if own["step"] == "clear":
        return replace(followed, foreign=(), complete=True)
    if own["step"] == "restore":
        before = known.get(int(commit.parameters["version"]))
        return replace(followed, foreign=before.foreign if before else ())
    entry = MergedPartition(commit.stamp["slice"], commit.version, commit.stamp["origin"])
    return replace(followed, entries=(*entries, entry))


def _restored(state: MergeState, commit: Commit, known: Mapping[int, MergeState]) -> MergeState:
    """Somebody restored the table: it holds what that version held, and what came after it is to be replayed."""
    version = commit.parameters.get("version")
    before = known.get(int(version)) if version is not None else None
    if before is None:
        # A restore to a time, or beyond the log: nobody can tell what is in.
        return replace(state, entries=(), foreign=(*state.foreign, commit), complete=False)
    there = {e.key for e in before.entries}
    out = [e.key for e in state.entries if e.key not in there]
    return replace(before, replay=tuple(dict.fromkeys([*before.replay, *out])), complete=state.complete)


def _ranks(order: Sequence[str]) -> dict[str, int]:
    return {key: number for number, key in enumerate(order)}
