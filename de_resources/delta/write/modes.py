"""From a mode to its writer: one small function each, in a table (`BY_MODE`). A new way of writing takes its place there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from dagster_delta import WriteMode

from de_resources.delta.asset_settings import MIGRATIONS
from de_resources.delta.log import TableLog
from de_resources.delta.maintenance.tombstones import Forgetting
from de_resources.delta.optional_columns import gain_optional_columns
from de_resources.delta.table import Table, Written
from de_resources.delta.write import constraints
from de_resources.delta.write import merge as merging
from de_resources.delta.write import overwrite as overwriting
from de_resources.delta.write import stateful_merge as stateful
from de_resources.delta.write import stream as streaming
from de_resources.delta.write.frames import match_schema
from de_resources.delta.write.request import WriteRequest
from de_resources.delta.write.stateful_plan import PartitionRun
from de_resources.delta.write.stored_form import ConstraintsOnStoredForm
from de_resources.delta.write.writer import Write
from de_resources.errors import PermanentError


def write_table(request: WriteRequest) -> Written:
    """Bring the frame into the declared form and write it, by the request's mode; the caller holds the table's lock.

    A partition of a stateful merge and a stream have writers of their own. A rerun leaves the same rows, other than of
    `append`; a retry of a write that had committed is skipped. Raises `UnstorableFrame`, `SchemaMismatch`, and what the
    writers raise.
    """
    from de_resources.delta.write.storable import require_storable  # only where something is written

    require_storable(request.frame.schema, request.table.name)
    if request.form.encode is not None and request.table.constraints():
        raise ConstraintsOnStoredForm(request.table.name)
    request = _conformed(request)
    blocked = constraints.enforce(request.session, request.table)
    written = _written(request)
    if blocked:
        # The rows that were in the way may have been replaced.
        blocked = constraints.enforce(request.session, request.table)
    return replace(written, details={**written.details, **constraints.told(blocked)}) if blocked else written


def _written(request: WriteRequest) -> Written:
    if request.turn is not None:
        return _merge_in_turn(request, request.turn)
    if request.frame.isStreaming:
        return streaming.run_available_now(
            request.session,
            request.table,
            request.frame,
            request.stamp,
            request.follows,
            form=request.form,
            settings=request.settings,
        )
    return BY_MODE[request.mode](request)


def _conformed(request: WriteRequest) -> WriteRequest:
    """The frame as its contract and the table want it. The first write may lack both.

    The table gains the optional columns that its contract has gained.
    """
    if request.replaces_schema and request.mode in (WriteMode.append, WriteMode.merge):
        raise PermanentError(
            f"`{request.table.name}` has the mode `{request.mode.value}`, which cannot replace its schema."
        )
    table, frame = request.table, request.frame
    if table.contract is not None:
        frame = match_schema(frame, table.name, table.contract.struct_type(), allow_new=request.evolves)
    if not request.replaces_schema and table.log() is not None:
        if not request.evolves and not request.metadata.get(MIGRATIONS):
            # A table that is migrated gains its columns in the step that a person takes.
            gain_optional_columns(request.session, table, table.contract)
        # Delta alone would accept a frame without some of the table's columns and fill them with nulls.
        frame = match_schema(frame, table.name, table.read(request.session).schema, allow_new=request.evolves)
    return replace(request, frame=frame)


def _overwrite(request: WriteRequest) -> Written:
    return overwriting.replace(
        request.session,
        request.table,
        request.frame,
        request.stamp,
        slice_=request.slice,
        evolve=request.evolves,
        replace_schema=request.replaces_schema,
        pre_clustered=bool(request.metadata.get("pre_clustered")),
        form=request.form,
    )


def _append(request: WriteRequest) -> Written:
    r = request
    return overwriting.append(r.session, r.table, r.frame, r.stamp, slice_=r.slice, evolve=r.evolves, form=r.form)


def _merge(request: WriteRequest) -> Written:
    r = request
    Forgetting.of(r.table.name, r.metadata)  # what the maintenance could not do is refused with the first write
    return merging.merge(
        r.session, r.table, r.frame, r.stamp, rule=r.rule, slice_=r.slice, evolve=r.evolves, form=r.form
    )


def _merge_in_turn(request: WriteRequest, turn: PartitionRun) -> Written:
    r = request
    return stateful.merge(r.session, r.table, r.frame, r.stamp, rule=r.rule, turn=turn, evolve=r.evolves, form=r.form)


def _create(request: WriteRequest) -> Written:
    """The mode `error`."""
    table = request.table
    if _existing(table) is not None:
        raise PermanentError(f"`{table.name}` exists and its mode is `error`. Choose another mode, or drop the table.")
    return _overwrite(request)


def _create_if_missing(request: WriteRequest) -> Written:
    """The mode `ignore`."""
    log = _existing(request.table)
    if log is None:
        return _overwrite(request)
    return Written(log.version, None, None, None, 0.0, skipped="the table exists and its mode is `ignore`")


def _existing(table: Table) -> TableLog | None:
    """The log of a table that was written. A first write that failed leaves a blank one, and has to be possible again."""
    log = table.log()
    return None if log is None or log.is_blank else log


BY_MODE: Mapping[WriteMode, Write] = {
    WriteMode.overwrite: _overwrite,
    WriteMode.create_or_replace: _overwrite,
    WriteMode.append: _append,
    WriteMode.merge: _merge,
    WriteMode.error: _create,
    WriteMode.ignore: _create_if_missing,
}
"""Every mode of dagster-delta has its writer."""
