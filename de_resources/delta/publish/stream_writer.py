"""The writer of *Audit-Write-Audit-Publish* for streams: stage what comes, show a window when it is over and passes its audits.

The stream's checkpoint lies in the staged table, so that rows are staged once. What became of a window is told by its verdicts
and by the readers' table, never by memory: a run that finds a window over looks whether it has files of which no verdict knows,
and judges all of it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import dagster as dg
from dagster_delta import WriteMode

from de_resources.delta.log import TableLog
from de_resources.delta.publish.audits import Audit, InputRows, InputSize, ReconcilesWithInput, audits_of
from de_resources.delta.publish.judging import Judging, Staged, sorted_out
from de_resources.delta.publish.live_files import live_slices, touched_since
from de_resources.delta.publish.publication import publish, published_now
from de_resources.delta.publish.records import judged_windows, newest_verdicts, record
from de_resources.delta.publish.staging import AUDIT, Key, keys_of_files, staging_of
from de_resources.delta.publish.verdicts import AuditFinding, Judged, markdown
from de_resources.delta.publish.windows import Windows, windows_of
from de_resources.delta.publish.writer import (
    FINDINGS,
    HELD,
    PUBLISHED,
    STAGED_VERSION,
    STATE,
    VERDICT,
    NotAudited,
    publishable,
)
from de_resources.delta.table import Table, Written
from de_resources.delta.write.refusals import ConcurrentWrite
from de_resources.delta.write.request import WriteRequest
from de_resources.delta.write.writer import Write, Writer


class AuditedWindows(Writer):
    """Stages a stream below the table, and publishes the windows that are over and passed, by commits that write no row.

    A window that an audit holds stays staged while others go on. Rows that come late for a window that was judged open it
    again: all of it is judged again, and what was shown of it stays until it passes. A rerun, also of a run that died anywhere,
    stages nothing twice, judges what no verdict knows, and commits nothing where readers see it already. Rows whose value of
    `by` lies in no window are staged, counted (`windows/rows_outside`) and never shown.
    """

    def write(self, request: WriteRequest, proceed: Write) -> Written:
        """Stage, audit, publish.

        Raises `NotAudited`, `NoAudits`, `NoWindows`, `CannotPublish`, `NotBySlice` and `SchemaMismatch` before anything is
        staged, what the stream raises, and `ConcurrentWrite` where another run has shown a newer state of a window.
        """
        started = time.monotonic()
        asset = request.stamp.writer
        windows = windows_of(asset, request.metadata)
        audits = audits_of(asset, request.metadata, request.table.contract)
        _require_stream(request, audits)
        request = publishable(request, [windows.by])
        log = request.table.log()
        staging = staging_of(request.table, log.partition_columns() if log else None)
        frame = request.frame.withColumn(AUDIT, sorted_out(request, audits))
        stamp = replace(request.stamp, table=f"{request.table.name}/{AUDIT}")
        written = proceed(replace(request, table=staging, frame=frame, stamp=stamp))
        standing = WindowStanding.of(request.table, windows)
        verdicts = _judge_and_publish(request, audits, standing, written)
        return _told(request, replace(written, seconds=time.monotonic() - started), standing, verdicts)


@dataclass(frozen=True)
class WindowStanding:
    """How the staged windows are before they are judged. `outside` counts rows in no window."""

    windows: Windows
    version: int
    staged: frozenset[str]
    over: frozenset[str]
    due: frozenset[str]
    outside: int

    @classmethod
    def of(cls, table: Table, windows: Windows) -> WindowStanding:
        """From the log of the staged table and the verdicts so far. One that was judged once stays over."""
        log = staging_of(table).log()
        if log is None:
            return cls(windows, 0, frozenset(), frozenset(), frozenset(), 0)
        files = log.files().to_pylist()
        column = f"partition.{windows.by}"
        keys = {value: windows.key_of(value) for value in {f[column] for f in files} if value is not None}
        staged = {key for key in keys.values() if key is not None}
        known = newest_verdicts(table)
        # What lies in no window is a wrong clock, and says nothing about how far the others have come.
        inside = [f for f in files if keys.get(f[column]) is not None]
        over = (known.keys() & staged) | windows.over(staged, _newest_event(table, windows, inside))
        due = {key for key in over if key not in known} | (_changed(log, windows, staged, known) & over)
        outside = sum(f["num_records"] for f in files if keys.get(f[column]) is None)
        return cls(windows, log.version, frozenset(staged), frozenset(over), frozenset(due), outside)


def _judge_and_publish(
    request: WriteRequest, audits: Sequence[Audit], standing: WindowStanding, written: Written
) -> dict[Key, Judged]:
    """The verdicts on the windows that are due; those that passed are shown.

    The verdicts are kept last: after a death all of it is repeated, and commits once.
    """
    if not standing.due:
        return {}
    slice_ = standing.windows.slice_of(standing.due)
    request = replace(request, slice=slice_)
    slices = live_slices(request.table, standing.version, slice_)
    judging = Judging.of(request, audits)
    judging.before()
    verdicts = judging.after(Staged(replace(written, version=standing.version), slices, slice_, None))
    good = {key: slices[key] for key, judged in verdicts.items() if not judged.held}
    if good:
        publish(
            request.table,
            slice_,
            good,
            verdicts,
            request.stamp,
            still=lambda log: _require_newest(request.table, log, standing.version, list(good)),
        )
    record(request.table, request.stamp, standing.version, verdicts, stream=True)
    return verdicts


def _require_stream(request: WriteRequest, audits: Sequence[Audit]) -> None:
    blind = [a.name for a in audits if isinstance(a, InputRows | InputSize | ReconcilesWithInput)]
    unfit = {
        "a frame that is no stream": not request.frame.isStreaming,
        f"the mode `{request.mode.value}`": request.mode not in (WriteMode.append, WriteMode.overwrite),
        "`schema_mode`": request.schema_mode is not None,
        "partitions": request.slice is not None,
        "immutable versions": type(request.table) is not Table,
        f"the audit `{blind[0] if blind else ''}`, for nobody counts the input of a window": bool(blind),
    }
    for what, so in unfit.items():
        if so:
            raise NotAudited(request.table.name, what)


def _newest_event(table: Table, windows: Windows, files: Sequence[Mapping[str, Any]]) -> datetime | None:
    newest = [f.get(f"max.{windows.event_time}") for f in files]
    known = [value for value in newest if value is not None]
    if newest and not known:
        raise NotAudited(
            table.name, f"`{windows.event_time}` as the time of events: the files have no statistics of it"
        )
    return max(known, default=None)


def _changed(log: TableLog, windows: Windows, staged: set[str], known: Mapping[str, int]) -> set[str]:
    """The windows with files of which no verdict knows. Where the log has forgotten so much, all of them may have."""
    if not staged or not known:
        return set()
    touched = touched_since(log, max(known.values()))
    keys = keys_of_files(log, windows.slice_of(staged))
    return {key for path, key in keys.items() if key is not None and (touched is None or path in touched)}


def _require_newest(table: Table, log: TableLog, version: int, keys: Sequence[Key]) -> None:
    """Raise `ConcurrentWrite` where another run has shown a newer state of one of the windows."""
    for key in keys:
        now = published_now(log, key)
        shown = now.keys[str(key)].staged if now else None
        if shown is not None and shown > version:
            raise ConcurrentWrite(
                table.name, f"it showed the staged version {shown} of {key}, which is after {version}"
            )


def told_of_windows(table: Table, standing: WindowStanding, verdicts: Mapping[Key, Judged]) -> dict[str, Any]:
    """Metadata of a materialisation: which windows `verdicts` show, which are held, and which are open.

    What the audits found is told of the windows of `verdicts` and of every one that is held, whenever it was judged: who looks
    at the newest materialisation sees all that waits for a decision.
    """
    held = {key: judged for key, (_, judged) in judged_windows(table).items() if judged.held}
    shown = sorted(str(key) for key, judged in verdicts.items() if not judged.held)
    still_open = sorted(standing.staged - standing.over)
    judged_now = {str(key): judged for key, judged in verdicts.items()}
    findings = [
        AuditFinding(f"{key}, {f.audit}", f.passed, f.said, f.reaction)
        for key, judged in sorted((held | judged_now).items())
        for f in judged.findings
    ]
    lacking = [f"{key}: {judged.told()}" for key, judged in sorted(held.items())]
    return {
        STATE: HELD if held else PUBLISHED,
        VERDICT: f"{len(shown)} window(s) are shown, {len(held)} held, {len(still_open)} open. {' '.join(lacking)}".strip(),
        FINDINGS: dg.MetadataValue.md(markdown(findings)),
        STAGED_VERSION: standing.version,
        "windows/shown": ", ".join(shown) or "none",
        "windows/held": ", ".join(sorted(held)) or "none",
        "windows/open": ", ".join(still_open) or "none",
        "windows/rows_outside": standing.outside,
    }


def _told(request: WriteRequest, written: Written, standing: WindowStanding, verdicts: Mapping[Key, Judged]) -> Written:
    log = request.table.log()
    told = told_of_windows(request.table, standing, verdicts)
    staging = staging_of(request.table)
    return replace(
        written,
        version=log.version if log else 0,
        table=staging if staging.log() else request.table,
        shown_at=request.table.uri,
        per_key={None: told},
    )
