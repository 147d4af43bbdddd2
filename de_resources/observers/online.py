"""Online Observer: the write itself measures what it writes.

    @dg.asset(metadata={"contract": "shop.contracts:Orders", "writer": "de_resources.observers.online:OnlineObserver"})

The figures are aggregates on the write's own job: no second read, no job more. Nulls and bounds that the commit's own
statistics tell are taken from there. They are told after the commit, by the materialisation, so that what never landed is
never reported. A stream is observed micro-batch by micro-batch: what adds up - counts and bounds - is told of all that
the run committed, and `observer/batches` shows each of them.

| metadata `observe` | meaning                                                                                       |
|--------------------|-----------------------------------------------------------------------------------------------|
| `columns`          | these columns only; default: all of the table, up to `MOST_COLUMNS`                            |
| `closely`          | of these columns more than nulls and bounds: distinct values, quantiles, NaN and infinities,   |
|                    | how many are true, the longest; default: `columns`, else the first (`looked_at_closely`)        |
| `sample`           | share of the rows that the quantiles look at; distinct values are not counted then             |
| `required`         | true: what fails in the observer fails the write; default: it is told, and the write goes on    |

Source: pattern *Online Observer*; Spark's `Observation`.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import uuid4

import dagster as dg
from dagster_delta import WriteMode
from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql.types import StructField

from de_resources.contract import Contract
from de_resources.delta.metadata import OF_RUN
from de_resources.delta.slices import OffsetRange
from de_resources.delta.table import Written
from de_resources.delta.write.request import WriteRequest
from de_resources.delta.write.writer import Write, Writer
from de_resources.engine.errors import ENGINE_ERRORS
from de_resources.errors import PermanentError
from de_resources.lineage import MARK
from de_resources.observers.figures_shown import PREFIX, markdown_table_of, numbers
from de_resources.observers.log_statistics import StatedStatistics, told_by, told_columns
from de_resources.observers.measures import (
    NULLS,
    Figures,
    Measure,
    aggregates,
    figures,
    joined,
    looked_at_closely,
    may_show_values,
    measures_of,
    sums_and_bounds_of,
    without_nulls,
)
from de_resources.observers.micro_batches import Seen, StreamLook, markdown_of, of_all
from de_resources.observers.settings import ObserverSettings
from de_resources.sql.identifiers import identifier

MOST_COLUMNS = 64
"""Beyond that an asset names the columns that it wants to be observed. Each figure is one more entry of every event."""

MOST_AGGREGATES = 160
"""A range of partitions with more figures than that is measured as a whole: each aggregate is asked for every row."""

_SAMPLED = f"{MARK}observed_sample"


class ObserverFailed(PermanentError):
    """An observer that could not look, of an asset that requires it."""

    def __init__(self, asset: str, why: str, *, committed: bool) -> None:
        self.asset, self.why, self.committed = asset, why, committed
        then = "The rows are committed; a retry does not write again." if committed else "Nothing was written."
        super().__init__(
            f"`{asset}` requires its observation, which failed: {why}. {then} Mend the observer, or set `required` to false."
        )


@dataclass(frozen=True)
class _Look:
    """One look at a frame on its way into the table: what is measured, by partition key; None: of the frame as a whole."""

    settings: ObserverSettings
    observation: Observation | None = None
    measures: Mapping[str | None, Sequence[Measure]] = field(default_factory=dict)
    fields: Sequence[StructField] = ()
    told: frozenset[str] = frozenset()
    """The columns of which the commit tells nulls and bounds."""
    left_out: int = 0
    failed: str = ""
    stream: StreamLook | None = None


@dataclass(frozen=True)
class _Landed:
    """The figures by partition key of what was committed; or the reason why there are none."""

    figures: Mapping[str | None, Figures] = field(default_factory=dict)
    why_not: str = ""
    batches: Sequence[Seen] = ()
    """The micro-batches of a stream."""


class OnlineObserver(Writer):
    """Measures the frame that it hands on. A rerun measures again; a retry that does not write again says so."""

    def __init__(self) -> None:
        self._look: _Look | None = None
        self._landed: _Landed | None = None

    def write(self, request: WriteRequest, proceed: Write) -> Written:
        """Write the frame under observation. Raises `NoSuchSetting`; `ObserverFailed` where the asset requires it."""
        asset = request.stamp.writer
        settings = ObserverSettings.of(asset, request.metadata)
        frame, self._look = self._observed(request, settings)
        if self._look.failed and settings.required:
            raise ObserverFailed(asset, self._look.failed, committed=False)
        written = proceed(replace(request, frame=frame))
        self._landed = _landed(self._look, request, written)
        return written

    def record(self, request: WriteRequest, written: Written) -> Mapping[str, Any]:
        """The figures of the write as a whole, or why there are none.

        Where a run over several partitions could not be measured by partition, they are the run's, and named so.
        """
        look, landed = self._look, self._landed
        if look is None or landed is None:
            return {}
        if landed.why_not:
            if look.settings.required and not written.skipped:
                raise ObserverFailed(request.stamp.writer, landed.why_not, committed=True)
            return {f"{PREFIX}/not_observed": landed.why_not}
        left_out = {f"{PREFIX}/columns_left_out": look.left_out} if look.left_out else {}
        batches = {f"{PREFIX}/batches": dg.MetadataValue.md(markdown_of(landed.batches))} if landed.batches else {}
        told = {**_told(landed.figures[None]), **left_out, **batches} if None in landed.figures else left_out
        return {f"{OF_RUN}{name}": value for name, value in told.items()} if len(_keys(request)) > 1 else told

    def record_by_key(self, request: WriteRequest, written: Written) -> Mapping[str, Mapping[str, Any]]:  # noqa: ARG002
        """The figures of each partition of a run over several, where there are not too many of them."""
        known = self._landed.figures if self._landed else {}
        return {key: _told(found) for key, found in known.items() if key is not None}

    def measures(
        self,
        request: WriteRequest,
        settings: ObserverSettings,
        fields: Sequence[StructField],
        where: Column | None,
        told: Container[str] = (),
    ) -> list[Measure]:
        """What is measured of these columns, in the rows for which `where` is true. A subclass may measure something else.

        Of the columns in `told`, the commit will tell the nulls and the bounds.
        """
        sample = F.col(_SAMPLED) if settings.sample < 1 else None
        contract = request.table.contract
        closely = _closely(settings, fields, contract)
        return measures_of(fields, contract, where=where, sample=sample, told=told, closely=closely)

    def _observed(self, request: WriteRequest, settings: ObserverSettings) -> tuple[DataFrame, _Look]:
        """The frame under observation; or as it is, with the reason."""
        plain = request.frame
        try:
            fields = _chosen(plain, settings)
            chosen = fields[:MOST_COLUMNS]
            if plain.isStreaming:
                frame, look = _watched_stream(request, chosen, settings)
                return frame, _Look(settings, stream=look, left_out=len(fields[MOST_COLUMNS:]))
            told = _told_by_the_commit(request)
            measures = self._by_key(request, settings, chosen, told)
            observation = Observation(f"observer_{uuid4().hex}")
            frame = _watched(_sampled(plain, settings), list(measures.values()), observation)
            # Over Spark Connect nothing was looked at so far: a mistake in an aggregate would fail the write.
            _ = frame.schema
        except Exception as error:  # noqa: BLE001 - whatever fails in looking is no reason not to write
            return plain, _Look(settings, failed=_in_short(error))
        return frame, _Look(settings, observation, measures, chosen, told, left_out=len(fields[MOST_COLUMNS:]))

    def _by_key(
        self, request: WriteRequest, settings: ObserverSettings, fields: Sequence[StructField], told: Container[str]
    ) -> Mapping[str | None, Sequence[Measure]]:
        whole = self.measures(request, settings, fields, None, told)
        keys = _keys(request)
        if request.slice is None or len(keys) < 2 or len(keys) * len(whole) > MOST_AGGREGATES:
            return {None: whole}
        schema = request.frame.schema
        inside = {key: F.expr(request.slice.key_predicate(key, schema)) for key in keys}
        return {key: self.measures(request, settings, fields, where, told) for key, where in inside.items()}


def _closely(settings: ObserverSettings, fields: Sequence[StructField], contract: Contract | None) -> Container[str]:
    return looked_at_closely(fields, contract) if settings.closely is None else settings.closely


def _watched_stream(
    request: WriteRequest, fields: Sequence[StructField], settings: ObserverSettings
) -> tuple[DataFrame, StreamLook]:
    """The stream under observation. Each micro-batch is a commit, whose files tell nulls and bounds of its rows alone."""
    contract = request.table.contract
    told = _told_by_its_files(request)
    bounded = frozenset(each.name for each in fields if may_show_values(each.name, contract))
    measures = sums_and_bounds_of(fields, contract, told=told, closely=_closely(settings, fields, contract))
    look = StreamLook(f"observer_{uuid4().hex}", measures, fields, told, bounded)
    frame = _watched(request.frame, [measures], look.name)
    _ = frame.schema
    return frame, look


def _watched(frame: DataFrame, looks: Sequence[Sequence[Measure]], observation: Observation | str) -> DataFrame:
    """The frame under observation. What the aggregates take is computed before, with the rest of the row."""
    columns = frame.columns
    inputs, wanted = [], []
    for place, each in enumerate(looks):
        taken = []
        for own, measure in enumerate(each):
            name = f"{MARK}observed_{place}_{own}"
            # A column as it is need not be stored in the row a second time.
            taken.append(F.col(identifier(name)) if measure.computed else measure.input)
            if measure.computed:
                inputs.append(measure.input.alias(name))
        wanted += aggregates(each, _prefix(place), taken)
    kept = [F.col(identifier(name)) for name in columns if name != _SAMPLED]
    return frame.select("*", *inputs).observe(observation, *wanted).select(*kept)


def _keys(request: WriteRequest) -> Sequence[str]:
    """The partition keys; a stretch of a stream is none."""
    return () if request.slice is None or isinstance(request.slice, OffsetRange) else request.slice.keys


def _prefix(place: int) -> str:
    return f"k{place}m"


def _told(found: Figures) -> dict[str, Any]:
    return {**numbers(found), f"{PREFIX}/columns": dg.MetadataValue.md(markdown_table_of(found))}


def _chosen(frame: DataFrame, settings: ObserverSettings) -> list[StructField]:
    fields = {field.name: field for field in frame.schema.fields}
    missing = [name for name in settings.columns if name not in fields]
    if missing:
        raise LookupError(f"there is no column {', '.join(map(repr, missing))}")
    return [fields[name] for name in settings.columns or fields]


def _sampled(frame: DataFrame, settings: ObserverSettings) -> DataFrame:
    # An observation takes no random function itself.
    return frame.withColumn(_SAMPLED, F.rand() < settings.sample) if settings.sample < 1 else frame


def _landed(look: _Look, request: WriteRequest, written: Written) -> _Landed:
    if look.stream is not None:
        return _landed_of_stream(look.stream, request, written)
    if look.observation is None:
        return _Landed(why_not=look.failed)
    # An observation of a write that did not run would be waited for, for ever.
    if written.skipped or written.commit is None:
        return _Landed(why_not=written.skipped or "nothing was committed")
    committed = None if request.mode == WriteMode.merge else written.commit.metric("numOutputRows")
    try:
        result = look.observation.get
    except ENGINE_ERRORS as error:
        if committed != 0:
            return _Landed(why_not=_in_short(error))
        # Where the engine finds out while planning that no row can come, it leaves the observation out.
        result = {}
    found = {key: figures(own, result, _prefix(place)) for place, (key, own) in enumerate(look.measures.items())}
    seen = sum(each.rows for each in found.values())
    if committed is not None and seen > committed:
        # A stage that was computed twice is counted twice.
        return _Landed(why_not=f"{seen:,} rows were seen and {committed:,} committed")
    return _Landed(_with_statistics(look, request, written, found) if look.told else found)


def _landed_of_stream(look: StreamLook, request: WriteRequest, written: Written) -> _Landed:
    log = (written.table or request.table).log()
    if written.skipped or log is None:
        return _Landed(why_not=written.skipped or "nothing was committed")
    try:
        seen = look.seen(log, written, _prefix(0))
    except LookupError as error:
        return _Landed(why_not=str(error))
    return _Landed({None: of_all(seen)}, batches=seen)


def _told_by_the_commit(request: WriteRequest) -> frozenset[str]:
    """The columns whose nulls and bounds need not be looked at: this write's files will tell them, and of no other rows."""
    columns = () if request.slice is None else request.slice.columns
    by_file = set(columns) <= set(request.table.partitioned_by)
    if request.mode not in (WriteMode.overwrite, WriteMode.append) or not by_file:
        return frozenset()
    return _told_by_its_files(request)


def _told_by_its_files(request: WriteRequest) -> frozenset[str]:
    if request.form.encode is not None:
        # They tell of the form in which the rows are stored, and not of what is meant.
        return frozenset()
    return told_columns(request.session, request.table, request.frame.schema)


def _with_statistics(
    look: _Look, request: WriteRequest, written: Written, found: Mapping[str | None, Figures]
) -> Mapping[str | None, Figures]:
    """The figures, and what the commit's statistics tell besides. Where they are not about these rows, they are left out."""
    assert written.commit is not None  # noqa: S101 - asked before
    table, version = written.table or request.table, written.commit.version
    slice_ = request.slice if None not in found else None
    fields = [field for field in look.fields if field.name in look.told]
    bounded = {field.name for field in fields if may_show_values(field.name, request.table.contract)}
    log = table.log()
    told = told_by(log, version, fields, slice_.key_of if slice_ else lambda _: None, bounded) if log else None
    seen = {key: each.rows for key, each in found.items() if each.rows}
    if told is None or {key: each.rows for key, each in told.items() if each.rows} != seen:
        return {key: without_nulls(each, look.told) for key, each in found.items()}
    nothing = StatedStatistics(0, {field.name: {NULLS: 0} for field in fields})
    return {key: joined(each, told.get(key, nothing).columns, look.fields) for key, each in found.items()}


def _in_short(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:300]}"
