"""Data Overwrite: replace one slice of a table, or the whole table, in one commit.

Source: pattern *Data Overwrite*; Delta's `replaceWhere` and `txnAppId`/`txnVersion`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import MappingProxyType
from uuid import uuid4

from pyspark.sql import DataFrame, Observation, SparkSession

from de_resources.delta.slices import Slice
from de_resources.delta.table import CommitInfo, Table, Written
from de_resources.delta.write import constraints, frames
from de_resources.delta.write.crash_points import crash_point
from de_resources.delta.write.refusals import explained
from de_resources.delta.write.stored_form import AS_IT_IS, StoredForm
from de_resources.engine.sessions import only_meanwhile
from de_resources.errors import PermanentError

_FEW_FILES_OPEN = {"spark.sql.maxConcurrentOutputFileWriters": "8"}
"""A task that holds no more partitions than this writes a file of each side by side; from there on it sorts its rows first, as
it does without. Bounded, as each file keeps up to a row group in memory, where a sort goes to the disk."""
_OF_A_TABLE_THAT_IS_THERE = frozenset({"replaceWhere", "mergeSchema", "overwriteSchema"})
"""Options that say what happens to the rows and columns that it has."""


def replace(
    session: SparkSession,
    table: Table,
    frame: DataFrame,
    stamp: CommitInfo,
    *,
    slice_: Slice | None,
    evolve: bool = False,
    replace_schema: bool = False,
    pre_clustered: bool = False,
    form: StoredForm = AS_IT_IS,
) -> Written:
    """Make the slice hold exactly the frame's rows; without a slice, the whole table.

    One commit; readers see the old rows or the new ones. An empty frame empties the slice. Rows outside are refused
    (`RowsOutsideSlice`) and nothing is written. `evolve` lets the table gain columns, `replace_schema` replaces the
    schema and is for whole tables only. `pre_clustered` promises that the frame's tasks hold few partitions each: its rows
    are then written where they are, instead of being brought together by partition first. A rerun leaves the same rows;
    a retry of a write that did commit is skipped.
    """
    if replace_schema and slice_ is not None:
        raise PermanentError(
            f"`{table.name}` is partitioned: replacing its schema would rewrite partitions that this run does not own. "
            "Use `schema_mode`: `merge`, or drop the table and backfill it."
        )
    options = stamp.options()
    if slice_ is not None:
        options["replaceWhere"] = slice_.predicate(frame.schema)
        # Where any task may hold any partition, each would leave a small file in each.
        options["optimizeWrite"] = "true" if len(slice_.keys) > 1 and not pre_clustered else "false"
    if evolve:
        options["mergeSchema"] = "true"
    if replace_schema:
        options["overwriteSchema"] = "true"
    settings = _FEW_FILES_OPEN if pre_clustered else {}
    return _write(session, table, frame, stamp, slice_, "overwrite", options, form, settings)


def append(
    session: SparkSession,
    table: Table,
    frame: DataFrame,
    stamp: CommitInfo,
    *,
    slice_: Slice | None,
    evolve: bool = False,
    form: StoredForm = AS_IT_IS,
) -> Written:
    """Add the frame's rows. Rows outside the slice are refused. A retry within a run is skipped; a new run appends."""
    options = stamp.options()
    if evolve:
        options["mergeSchema"] = "true"
    return _write(session, table, frame, stamp, slice_, "append", options, form)


def _write(
    session: SparkSession,
    table: Table,
    frame: DataFrame,
    stamp: CommitInfo,
    slice_: Slice | None,
    mode: str,
    options: dict[str, str],
    form: StoredForm,
    settings: Mapping[str, str] = MappingProxyType({}),
) -> Written:
    started = time.monotonic()
    crash_point("before_write", table.name)
    observation = Observation(f"write_{uuid4().hex}")
    keys = slice_.keys if slice_ else ()
    with explained(table, frame, slice_), table.first_write(session, frame.schema, keys) as new:
        held = constraints.held(table) if new is None else constraints.all_of(table)
        guarded = frames.counted(frames.guard(frame, slice_), table.contract, observation, held)
        stored = form.encoded(guarded, table.name, slice_)
        crash_point("before_commit", table.name)
        with only_meanwhile(session, settings):
            if new is None:
                stored.write.format("delta").mode(mode).options(**options).save(table.uri)
            else:
                # Refused where somebody else has created it meanwhile.
                own = {name: value for name, value in options.items() if name not in _OF_A_TABLE_THAT_IS_THERE}
                new.writer(stored).mode("error").options(**own).save(table.uri)
    crash_point("after_commit", table.name)
    return _confirmed(table, stamp, observation, held, time.monotonic() - started)


def _confirmed(
    table: Table, stamp: CommitInfo, observation: Observation, held: frozenset[str], seconds: float
) -> Written:
    """Ask the log what happened: an engine that skipped a known transaction reports success as well."""
    log = table.log()
    if log is None:
        raise PermanentError(f"`{table.name}` vanished while it was written. Restore it, then run again.")
    commit = log.find(attempt=stamp.attempt)
    if commit is None:
        earlier = log.find(origin=stamp.origin, writer=stamp.writer, slice=stamp.slice)
        version = earlier.version if earlier else log.version
        reason = f"this run had already committed the slice as version {version}; nothing was repeated"
        return Written(version, earlier, None, None, seconds, skipped=reason, repeated=True)
    # Only a write that ran has an observation; asking for it after a skipped one would wait for ever.
    rows, violations = constraints.with_held(table, log, frames.observed(observation), held)
    return Written(commit.version, commit, rows, violations, seconds)
