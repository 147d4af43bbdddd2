"""Stateful Merger: a merge per partition, each on top of the one before, that can be run again from any partition on.

A row of such a table is the outcome of all partitions so far, so that an old partition cannot simply be merged again.
It is taken out first, with all that came after it: the table is restored to the version before the partition's own
commit, or cleared where nothing came before. The partitions after it are then marked for replay and have to be run
again in order; until then a later one is refused. A normal run restores nothing.

Which partition came in with which version is read from the log (`merge_state`). All that can be refused is refused before
anything is changed: the frame is compared with the earlier version, and the restore is the last step before the merge.
A crash between the two is healed by running the partition, or an earlier one, again.

Source: pattern *Stateful Merger*; Delta's `RESTORE` and time travel.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from de_resources.delta.log.versions import VersionUnreadable
from de_resources.delta.maintenance.restore import restore_held
from de_resources.delta.maintenance.statements import stamped
from de_resources.delta.table import CHECKS, CommitInfo, Table, TableMissing, Written
from de_resources.delta.write import constraints
from de_resources.delta.write.crash_points import crash_point
from de_resources.delta.write.frames import match_schema
from de_resources.delta.write.merge import BaseState, MergeRule
from de_resources.delta.write.merge import merge as merge_rows
from de_resources.delta.write.merge_state import AFTER, MergedPartition, MergeState
from de_resources.delta.write.refusals import explained
from de_resources.delta.write.stateful_plan import (
    LoggedPast,
    MergePlan,
    NoOrder,
    PartitionRun,
    ReadState,
    StateGone,
    planned,
)
from de_resources.delta.write.stored_form import AS_IT_IS, StoredForm


def merge(
    session: SparkSession,
    table: Table,
    frame: DataFrame,
    stamp: CommitInfo,
    *,
    rule: MergeRule,
    turn: PartitionRun,
    evolve: bool = False,
    form: StoredForm = AS_IT_IS,
) -> Written:
    """Merge the turn's partition on top of the partitions before it; the caller holds the commit lock exclusively.

    Commits the merge; before it a restore, or a deletion of all rows, where the partition or a later one is in the table.
    A merge that changes nothing commits its stamp without a file, so that the partition's place is known. A rerun
    leaves the same rows; a retry of a run that had committed is skipped. Raises `ReplayFirst`, `StateGone`, `WouldUndo`,
    `StateMoved`, and what `merge.merge` raises; each before anything is changed.
    """
    if frame.isStreaming:
        raise NoOrder(stamp.writer, "a stream has no partitions. Merge it without state")
    started = time.monotonic()
    log = table.log()
    state = MergeState.of(log, stamp.writer)
    newest = state.newest
    if log is not None and newest is not None and (newest.key, newest.origin) == (turn.key, stamp.origin):
        commit = log.find(origin=stamp.origin, writer=stamp.writer, slice=stamp.slice)
        reason = f"this run had already committed the partition as version {newest.version}; nothing was repeated"
        seconds = time.monotonic() - started
        return Written(newest.version, commit, None, None, seconds, skipped=reason, repeated=True)
    plan = planned(state, turn, table.name, LoggedPast(log, table.name) if log else None)
    ground = _ground(session, table, plan, stamp)
    if ground is not None:
        # What the table was then may lack a column that it has gained since.
        frame = match_schema(frame, table.name, ground.rows.schema, allow_new=evolve)
    own = replace(stamp, facts=plan.merging)
    written = merge_rows(session, table, frame, own, rule=rule, slice_=None, evolve=evolve, ground=ground, form=form)
    if written.commit is None:
        written = _mark(session, table, written, own)
    return replace(written, seconds=time.monotonic() - started, details=_details(turn, plan))


def read(
    session: SparkSession,
    table: Table,
    writer: str,
    keys: Sequence[str],
    order: Sequence[str],
    *,
    if_missing: StructType | None = None,
) -> tuple[DataFrame, ReadState | None]:
    """The table as it was after the last of the partitions `keys`, and what that rests on; no keys: without rows.

    A version that was only compacted since is read in its compacted form. A table that does not exist has the columns
    `if_missing` and no rows. Raises `ReplayFirst`, `StateGone`, and `TableMissing` where no columns are given.
    """
    log = table.log()
    state = MergeState.of(log, writer)
    asked = set(keys)
    last = next((key for key in reversed(order) if key in asked), None)
    if log is None and if_missing is not None:
        # Another run may create the table before this one merges: that nothing was there is a basis as well.
        return session.createDataFrame([], if_missing), ReadState(last, None) if last else None
    if last is None:
        return table.read(session).limit(0), None
    entry = state.as_of(last, order, table.name)
    basis = ReadState(last, entry)
    if last == order[-1] or entry == state.newest:
        # Pinned: a frame without a version would follow what another run commits until it is computed.
        return table.read(session, state.version), basis
    if entry is None and state.complete:
        return table.read(session).limit(0), basis
    return _travelled(session, table, state, entry, last, order[0]), basis


def _travelled(
    session: SparkSession, table: Table, state: MergeState, entry: MergedPartition | None, key: str, first: str
) -> DataFrame:
    if entry is None:
        raise StateGone(table.name, key, "the log no longer tells which partitions came before it", first)
    try:
        return table.read(session, state.end_of(entry))
    except VersionUnreadable as error:
        raise StateGone(table.name, key, error.reason, first) from None


def _ground(session: SparkSession, table: Table, plan: MergePlan, stamp: CommitInfo) -> BaseState | None:
    """The rows below the turn's partition, where the table has to be taken back to them."""
    if plan.clear:
        return BaseState(table.read_pinned(session).limit(0), lambda: _clear(session, table, plan, stamp))
    if plan.back_to is not None:
        version = plan.back_to
        return BaseState(table.read(session, version), lambda: _restore(session, table, version, plan, stamp))
    return None


def _clear(session: SparkSession, table: Table, plan: MergePlan, stamp: CommitInfo) -> None:
    """Remove all rows. Not a restore of the empty table: its version may be gone, and a way out has to remain."""
    crash_point("before_commit", table.name)
    with explained(table), stamped(session, replace(stamp, facts=plan.taking_back)) as own:
        own.sql(f"DELETE FROM {table.sql}").collect()
    crash_point("after_commit", table.name)


def _restore(session: SparkSession, table: Table, version: int, plan: MergePlan, stamp: CommitInfo) -> None:
    """Take the rows back, and not the settings: Delta would also undo a retention that was raised since."""
    before = table.properties_now()
    restore_held(session, table, version, replace(stamp, facts=plan.taking_back))
    after = table.properties_now()
    kept = {name: value for name, value in before.items() if not name.startswith(CHECKS)}
    changed = {name: value for name, value in kept.items() if after.get(name) != value}
    if changed:
        with explained(table):
            table.set_properties(session, changed)
    # Those of that version may be fewer, or those of an older contract.
    constraints.enforce(session, table)


def _mark(session: SparkSession, table: Table, written: Written, stamp: CommitInfo) -> Written:
    """Commit the stamp of a merge that changed nothing. The transaction identifier makes Delta commit without a file."""
    crash_point("before_commit", table.name)
    nothing = session.createDataFrame([], table.read(session).schema)
    with explained(table):
        nothing.write.format("delta").mode("append").options(**stamp.options(stamp.attempt)).save(table.uri)
    crash_point("after_commit", table.name)
    log = table.log()
    commit = log.find(attempt=stamp.attempt, limit=10) if log else None
    if commit is None:
        raise TableMissing(table.name)
    return replace(written, version=commit.version, commit=commit)


def _details(turn: PartitionRun, plan: MergePlan) -> dict[str, str | int | Sequence[str]]:
    taken_back = "not" if plan.back_to is None else f"to version {plan.back_to}"
    return {
        "slice": turn.key,
        AFTER: plan.after.key if plan.after else "nothing",
        "stateful/taken_back": "cleared" if plan.clear else taken_back,
        "stateful/replay": list(plan.replay),
    }
