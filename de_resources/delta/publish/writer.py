"""The writer of *Audit-Write-Audit-Publish*: audit the inputs, stage, audit what is staged, publish what passed.

Each partition key is judged and shown by itself: of a range, the good days are published and the bad ones held.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import uuid4

import dagster as dg
from dagster_delta import WriteMode
from pyspark.sql import Observation
from pyspark.sql import functions as F

from de_resources.delta.log.table_log import Commit
from de_resources.delta.optional_columns import gain_optional_columns
from de_resources.delta.publish.audits import Audit, audits_of
from de_resources.delta.publish.judging import Judging, Staged, counters, sorted_out
from de_resources.delta.publish.publication import (
    FACT,
    Shown,
    publish,
    require_publishable,
    require_stored_by,
)
from de_resources.delta.publish.records import record, records
from de_resources.delta.publish.staging import (
    AUDIT,
    STAGES,
    WHOLE,
    Key,
    keys_of,
    staged_slices,
    staging_of,
)
from de_resources.delta.publish.verdicts import Judged, from_texts, markdown
from de_resources.delta.slices import Slice
from de_resources.delta.table import Table, TableMissing, Written
from de_resources.delta.write.frames import match_schema
from de_resources.delta.write.refusals import ConcurrentWrite, explained
from de_resources.delta.write.request import WriteRequest
from de_resources.delta.write.writer import Write, Writer
from de_resources.engine.errors import ENGINE_ERRORS
from de_resources.errors import PermanentError

STATE, STAGED_VERSION, VERDICT, FINDINGS = (
    "publication/state",
    "publication/staged_version",
    "publication/verdict",
    "publication/audits",
)
PUBLISHED, HELD = "published", "held"
STAGED_FOR = "staged_for"
"""The name under which it says for which run, or chain of automatic retries: a retry judges what is staged already."""


class NotAudited(PermanentError):
    """A way of writing that cannot be staged slice by slice."""

    def __init__(self, table: str, what: str) -> None:
        self.table, self.what = table, what
        super().__init__(
            f"`{table}` is audited before it is published, and cannot be written with {what}. Nothing was written. Leave it "
            "out of the asset's metadata, or `AuditedPublish` out of its `writer`."
        )


class AuditedPublish(Writer):
    """Stages a write below the table, judges it, and publishes the slices that passed by a commit that writes no row.

    A slice that an audit holds stays staged; readers see what they saw. The step succeeds in either case: the
    materialisation says what became of each key (`publication/state`), and `publication_check` stops what is downstream.
    A rerun stages and judges again. A retry stages nothing again: it judges what an earlier attempt had staged, and
    publishes it unless that is done.
    """

    def write(self, request: WriteRequest, proceed: Write) -> Written:
        """Audit, stage, audit, publish.

        Raises `NotAudited`, `NoAudits`, `CannotPublish`, `NotBySlice` and `SchemaMismatch` before anything is staged; of two
        runs of one slice at once, the one whose rows were staged first gets `ConcurrentWrite`.
        """
        started = time.monotonic()
        _require_plain(request)
        audits = audits_of(request.stamp.writer, request.metadata, request.table.contract)
        request = publishable(request, request.slice.columns if request.slice else ())
        repeated = _published_by_an_earlier_attempt(request)
        if repeated is not None:
            return repeated
        judging = Judging.of(request, audits)
        refused = judging.before()
        if set(refused) == set(keys_of(request.slice)):
            return _written(request, None, refused, None, started)
        staged = _stage(request, audits, [key for key in keys_of(request.slice) if key not in refused], proceed)
        verdicts = judging.after(staged)
        record(request.table, request.stamp, staged.written.version, {**refused, **verdicts})
        good = {key: staged.slices[key] for key, judged in verdicts.items() if not judged.held}
        shown = (
            publish(
                request.table,
                request.slice,
                good,
                verdicts,
                request.stamp,
                still=lambda _: _require_newest(request.table, staged.written.version, list(good)),
            )
            if good
            else None
        )
        return _written(request, staged, {**refused, **verdicts}, shown, started)


def _require_plain(request: WriteRequest) -> None:
    unfit = {
        f"the mode `{request.mode.value}`": request.mode != WriteMode.overwrite,
        "`schema_mode`": request.schema_mode is not None,
        "`stateful`": request.turn is not None,
        "a stream": request.frame.isStreaming,
        "immutable versions": type(request.table) is not Table,
    }
    for what, so in unfit.items():
        if so:
            raise NotAudited(request.table.name, what)


def publishable(request: WriteRequest, by: Sequence[str]) -> WriteRequest:
    """The request with a frame of the declared columns, for a table that is there and in which slices of `by` can be shown.

    Table and stage gain the optional columns that their contract has gained.
    Raises `NotAudited`, `SchemaMismatch`, `TableMissing`, `CannotPublish` and `NotBySlice`.
    """
    table, frame = request.table, request.frame
    if AUDIT in frame.columns:
        raise NotAudited(table.name, f"a column `{AUDIT}`")
    if table.contract is not None:
        frame = match_schema(frame, table.name, table.contract.struct_type())
    keys = request.slice.keys if request.slice else ()
    with explained(table):
        table.create_if_missing(request.session, frame.schema, keys)
    log = table.log()
    if log is None:
        raise TableMissing(table.name)
    require_publishable(table, log)
    require_stored_by(table, log, by)
    # What is staged gains them first: of a death in between the next write finds a table that still lacks them.
    for each in (staging_of(table, log.partition_columns()), table):
        gain_optional_columns(request.session, each, table.contract)
    return replace(request, frame=match_schema(frame, table.name, table.read(request.session).schema))


def _stage(request: WriteRequest, audits: Sequence[Audit], keys: Sequence[Key], proceed: Write) -> Staged:
    """Write the slice of these keys where no reader looks, and count on the way."""
    log = request.table.log()
    staging = staging_of(request.table, log.partition_columns() if log else None)
    slice_, frame = request.slice, request.frame
    if slice_ is not None and len(keys) < len(slice_.keys):
        by_key = {key: slice_.by_key[str(key)] for key in map(str, keys)}
        slice_ = Slice(tuple(by_key.values()), by_key)
        frame = frame.where(F.expr(slice_.predicate(frame.schema)))
    observation = Observation(f"audit_{uuid4().hex}")
    counted = frame.withColumn(AUDIT, sorted_out(request, audits)).observe(observation, *counters(request, audits))
    attempt = replace(
        request.stamp,
        table=f"{request.table.name}/{AUDIT}",
        # Told apart by attempt: whether one stages is decided here, by what it would stage.
        origin=request.stamp.attempt,
        facts={**request.stamp.facts, STAGES: _texts(keys), STAGED_FOR: request.stamp.origin},
    )
    written = _staged_by_an_earlier_attempt(request, keys)
    if written is None:
        written = proceed(replace(request, table=staging, frame=counted, slice=slice_, stamp=attempt))
    slices = staged_slices(request.table, written.version, slice_)
    return Staged(written, slices, slice_, _observed(observation) if written.rows is not None else None)


def _texts(keys: Sequence[Key]) -> list[str]:
    return [WHOLE if key is None else key for key in keys]


def _staged_by_an_earlier_attempt(request: WriteRequest, keys: Sequence[Key]) -> Written | None:
    """What an earlier attempt of this run had staged of the same keys; its counters died with it."""
    log = staging_of(request.table).log()
    wanted: dict[str, Any] = {
        "writer": request.stamp.writer,
        "slice": request.stamp.slice,
        STAGED_FOR: request.stamp.origin,
    }
    earlier = log.find(**wanted) if log else None
    if earlier is None or earlier.stamp[STAGES] != _texts(keys):
        return None
    if _staged_since(request.table, earlier.version, keys) is not None:
        return None
    return Written(earlier.version, earlier, None, None, 0.0, repeated=True)


def _observed(observation: Observation) -> Mapping[str, Any] | None:
    try:
        return dict(observation.get)
    except ENGINE_ERRORS:
        return None


def _require_newest(table: Table, version: int, keys: Sequence[Key]) -> None:
    """Raise `ConcurrentWrite` where another run has staged one of the keys later: what it shows is the newer."""
    later = _staged_since(table, version, keys)
    if later is not None:
        raise ConcurrentWrite(table.name, f"it staged version {later} after {version}")


def _staged_since(table: Table, version: int, keys: Sequence[Key]) -> int | None:
    """A staged version after this one that has one of the keys."""
    log = staging_of(table).log()
    wanted = set(_texts(keys))
    for commit in log.commits(log.version - version) if log and log.version > version else ():
        if commit.version > version and wanted & set(commit.stamp.get(STAGES, ())):
            return commit.version
    return None


def _published_by_an_earlier_attempt(request: WriteRequest) -> Written | None:
    """What an earlier attempt of this run had published, before it died; None where it had published nothing."""
    log = request.table.log()
    stamp = request.stamp
    earlier = log.find(origin=stamp.origin, writer=stamp.writer, slice=stamp.slice) if log else None
    if log is None or earlier is None or FACT not in earlier.stamp:
        return None
    own = (stamp.writer, stamp.slice, stamp.origin)
    kept = next((r for r in records(request.table) if (r.writer, r.slice, r.origin) == own), None)
    told = kept.keys if kept else from_texts(earlier.stamp[FACT]["keys"])
    verdicts: dict[Key, Judged] = {None if k == WHOLE else k: v for k, v in told.items()}
    reason = f"this run had already published the slice as version {earlier.version}; nothing was repeated"
    written = Written(earlier.version, earlier, None, None, 0.0, skipped=reason, repeated=True)
    return _told(request, written, verdicts)


def _written(
    request: WriteRequest, staged: Staged | None, verdicts: Mapping[Key, Judged], shown: Shown | None, started: float
) -> Written:
    log = request.table.log()
    version = shown.version if shown else log.version if log else 0
    seconds = time.monotonic() - started
    if staged is None:
        reason = "an audit of the input let nothing be computed"
        return _told(request, Written(version, None, None, None, seconds, skipped=reason), verdicts)
    commit: Commit | None = staged.written.commit
    contract = request.table.contract
    violations = None
    if staged.counted is not None and contract is not None:
        violations = {r.name: int(staged.counted.get(r.name) or 0) for r in contract.rules}
    details: dict[str, str | float | Sequence[str]] = {}
    if shown:
        details = {"publication/seconds": round(shown.seconds, 4), "publication/bytes_written": shown.bytes_written}
    again = staged.written.repeated
    written = Written(version, commit, staged.written.rows, violations, seconds, repeated=again, details=details)
    return _told(request, written, verdicts)


def _told(request: WriteRequest, written: Written, verdicts: Mapping[Key, Judged]) -> Written:
    held = [WHOLE if key is None else key for key, judged in verdicts.items() if judged.held]
    details = {**written.details, "publication/held": ", ".join(held) or "none"}
    return replace(
        written,
        table=staging_of(request.table) if staging_of(request.table).log() else request.table,
        shown_at=request.table.uri,
        details=details,
        per_key={key: told_of(key, judged) for key, judged in verdicts.items()},
    )


def told_of(key: Key, judged: Judged) -> dict[str, Any]:
    """What the materialisation of a key says about its verdict."""
    rows = "dagster/row_count" if key is None else "dagster/partition_row_count"
    told: dict[str, Any] = {
        rows: judged.rows,
        STATE: HELD if judged.held else PUBLISHED,
        VERDICT: judged.told(),
        FINDINGS: dg.MetadataValue.md(markdown(judged.findings)),
        "publication/rejected": judged.rejected,
    }
    return told if judged.staged is None else {**told, STAGED_VERSION: judged.staged}
