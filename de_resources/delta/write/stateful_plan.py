"""What a stateful merge has to do before it merges, decided before anything is changed. Part of *Stateful Merger*."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import dagster as dg

from de_resources.delta.log import Commit, TableLog
from de_resources.delta.log.versions import VersionUnreadable, version_to_read
from de_resources.delta.write.merge_state import MergedPartition, MergeState, facts
from de_resources.errors import PermanentError, TransientError

UNDO_TAG = "de/stateful_undo"
"""Run tag that lets a rerun undo what others changed: the version of the newest of their commits."""


class NoOrder(PermanentError):
    """An asset that cannot be merged statefully as it is declared or run."""

    def __init__(self, asset: str, why: str) -> None:
        self.asset, self.why = asset, why
        super().__init__(f"`{asset}` is `stateful`: {why}. Nothing was written.")


class StateGone(PermanentError):
    """The state on which a partition has to build can no longer be told, or no longer be read."""

    def __init__(self, table: str, key: str, why: str, first: str) -> None:
        self.table, self.key, self.why, self.first = table, key, why, first
        super().__init__(
            f"`{table}` cannot be taken back to what it was before `{key}`: {why}. Nothing was changed. Run the first "
            f"partition, `{first}`, which clears the table, and then all others in order. To be able to go back further, "
            "raise the table properties `delta.deletedFileRetentionDuration` and `delta.logRetentionDuration`."
        )


class WouldUndo(PermanentError):
    """Others changed rows since, and taking the table back would undo that: a correction, or a person's deletion."""

    def __init__(self, table: str, key: str, commits: Sequence[Commit]) -> None:
        self.table, self.key, self.versions = table, key, tuple(c.version for c in commits)
        told = ", ".join(f"{c.version} ({c.operation})" for c in commits)
        super().__init__(
            f"Running `{key}` of `{table}` again would undo what others committed as version {told}. Nothing was changed. "
            f"Make their change in the source as well, then run with the tag `{UNDO_TAG}: {max(self.versions)}`."
        )


class StateMoved(TransientError):
    """Another run replayed what this one had read."""

    def __init__(self, table: str, key: str) -> None:
        self.table, self.key = table, key
        super().__init__(
            f"Another run changed what `{table}` held after `{key}` while this one computed with it. This run has "
            "changed nothing. Run it again."
        )


@dataclass(frozen=True)
class ReadState:
    """What a run read of the table that it is about to write: the state after a partition. None: nothing was in."""

    key: str
    entry: MergedPartition | None


@dataclass(frozen=True)
class PartitionRun:
    """The partition that is run, among all partitions in their order. `undo`: the newest foreign version to undo."""

    key: str
    order: tuple[str, ...]
    undo: int = -1
    basis: ReadState | None = None

    @classmethod
    def of(
        cls, asset: str, keys: Sequence[str], partitions: dg.PartitionsDefinition, tags: Mapping[str, str]
    ) -> PartitionRun:
        """The turn of a run. Raises `NoOrder` for several partitions at once, and for partitions without an order."""
        if len(keys) != 1:
            raise NoOrder(
                asset,
                f"its partitions are merged one after another, and this run has {len(keys)}. Backfill it with one run per "
                "partition (`BackfillPolicy.multi_run(1)`, the default)",
            )
        undo = tags.get(UNDO_TAG, "")
        return cls(keys[0], order_of(asset, partitions), int(undo) if undo.isdecimal() else -1)

    @property
    def is_first(self) -> bool:
        """Whether nothing can come before it."""
        return self.key == self.order[0]


def order_of(asset: str, partitions: dg.PartitionsDefinition) -> tuple[str, ...]:
    """All partition keys in their order. Raises `NoOrder` for partitions that have none."""
    if not isinstance(partitions, dg.TimeWindowPartitionsDefinition | dg.StaticPartitionsDefinition):
        raise NoOrder(
            asset, f"its partitions ({type(partitions).__name__}) have no order. Use time or static partitions"
        )
    return tuple(partitions.get_partition_keys())


@dataclass(frozen=True)
class MergePlan:
    """What has to happen before the merge. `back_to`: the version to restore; `clear`: all rows go.

    `replay` are the partitions that are still out after the merge, `awaited` those that are out before it; `elsewhere` are
    those that are out and that this calendar does not have: they are awaited where they are partitions again.
    """

    kept: tuple[MergedPartition, ...]
    awaited: tuple[str, ...]
    replay: tuple[str, ...]
    elsewhere: tuple[str, ...] = ()
    back_to: int | None = None
    clear: bool = False

    @property
    def after(self) -> MergedPartition | None:
        """The partition on which the merge builds."""
        return self.kept[-1] if self.kept else None

    @property
    def taking_back(self) -> dict[str, Any]:
        """What the stamp of the commit before the merge says."""
        out = (*self.awaited, *self.elsewhere)
        return facts("clear", None, out) if self.clear else facts("restore", self.after, out)

    @property
    def merging(self) -> dict[str, Any]:
        """What the stamp of the merge says."""
        return facts("merge", self.after, (*self.replay, *self.elsewhere))


class Past(Protocol):
    """What a plan asks of a table beside its state."""

    def holds_rows(self) -> bool:
        """Whether there is anything to clear."""

    def readable(self, version: int) -> int:
        """The version that holds the rows of `version`. Raises `VersionUnreadable`."""


@dataclass(frozen=True)
class LoggedPast:
    """The past of a table that exists: its log is read and its files are looked for, nothing is scanned."""

    log: TableLog
    table: str

    def holds_rows(self) -> bool:
        """Whether the newest version has a file."""
        return bool(self.log.files().num_rows)

    def readable(self, version: int) -> int:
        """As `version_to_read`."""
        return version_to_read(self.log, self.table, version)


def planned(state: MergeState, turn: PartitionRun, table: str, past: Past | None) -> MergePlan:
    """What the turn has to do in this state of the table; no past: the table does not exist.

    Where all that is in the table is of another calendar, the first partition of this one builds on nothing: what was added
    is set aside.

    Raises `ReplayFirst`, `StateMoved`, `StateGone` and `WouldUndo`.
    """
    _require_basis(state, turn, table)
    state.require_replayed(table, turn.key, turn.order[: turn.order.index(turn.key)])
    kept, later = state.split(turn.key, turn.order)
    known = set(turn.order)
    if turn.is_first and known.isdisjoint(e.key for e in state.entries):
        kept, later = (), state.entries
    out = dict.fromkeys([*state.replay, *(e.key for e in later)])
    awaited = tuple(key for key in turn.order if key in out)
    replay = tuple(key for key in awaited if key != turn.key)
    if not kept and not state.complete and not turn.is_first:
        raise StateGone(table, turn.key, "the log no longer tells which partitions came before it", turn.order[0])
    plan = MergePlan(kept, awaited, replay, tuple(key for key in out if key not in known))
    if past is not None and not kept and (later or turn.is_first) and past.holds_rows():
        plan = replace(plan, clear=True)
    elif past is not None and kept and later:
        plan = replace(plan, back_to=_readable(past, table, turn, later[0].version - 1))
    _require_own(state, turn, table, plan)
    return plan


def _require_basis(state: MergeState, turn: PartitionRun, table: str) -> None:
    basis = turn.basis
    if basis is not None and state.as_of(basis.key, turn.order, table) != basis.entry:
        raise StateMoved(table, basis.key)


def _readable(past: Past, table: str, turn: PartitionRun, version: int) -> int:
    try:
        return past.readable(version)
    except VersionUnreadable as error:
        why = f"that was version {version}, and {error.reason}"
        raise StateGone(table, turn.key, why, turn.order[0]) from None


def _require_own(state: MergeState, turn: PartitionRun, table: str, plan: MergePlan) -> None:
    """Others' rows may stay below, never be undone unseen."""
    if plan.back_to is None and not plan.clear:
        return
    undone = [c for c in state.foreign if plan.clear or c.version > (plan.back_to or 0)]
    if undone and undone[-1].version > turn.undo:
        raise WouldUndo(table, turn.key, undone)
