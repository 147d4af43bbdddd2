"""Online Observer: the write itself measures what it writes.

    @dg.asset(metadata={"contract": "shop.contracts:Orders", "writer": "de_resources.observers.online:OnlineObserver"})

The figures are aggregates on the write's own job: no second read, no job more. They are told after the commit, by the
materialisation, so that what never landed is never reported.

| metadata `observe` | meaning                                                                                       |
|--------------------|-----------------------------------------------------------------------------------------------|
| `columns`          | these columns only; default: all of the table, up to `MOST_COLUMNS`                            |
| `sample`           | share of the rows that the quantiles look at; distinct values are not counted then             |
| `required`         | true: what fails in the observer fails the write; default: it is told, and the write goes on    |

Source: pattern *Online Observer*; Spark's `Observation`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import uuid4

import dagster as dg
from dagster_delta import WriteMode
from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql.types import StructField

from de_resources.delta.metadata import OF_RUN
from de_resources.delta.slices import OffsetRange
from de_resources.delta.table import Written
from de_resources.delta.write.request import WriteRequest
from de_resources.delta.write.writer import Write, Writer
from de_resources.engine.errors import ENGINE_ERRORS
from de_resources.errors import PermanentError
from de_resources.lineage import MARK
from de_resources.observers.figures_shown import PREFIX, markdown_table_of, numbers
from de_resources.observers.measures import Figures, Measure, aggregates, figures, measures_of
from de_resources.observers.settings import Settings
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

    settings: Settings
    observation: Observation | None = None
    measures: Mapping[str | None, Sequence[Measure]] = field(default_factory=dict)
    left_out: int = 0
    failed: str = ""


@dataclass(frozen=True)
class _Landed:
    """The figures by partition key of what was committed; or the reason why there are none."""

    figures: Mapping[str | None, Figures] = field(default_factory=dict)
    why_not: str = ""


class OnlineObserver(Writer):
    """Measures the frame that it hands on. A rerun measures anew; a retry that does not write again says so."""

    def __init__(self) -> None:
        self._look: _Look | None = None
        self._landed: _Landed | None = None

    def write(self, request: WriteRequest, proceed: Write) -> Written:
        """Write the frame under observation. Raises `NoSuchSetting`; `ObserverFailed` where the asset requires it."""
        asset = request.stamp.writer
        settings = Settings.of(asset, request.metadata)
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
        told = {**_told(landed.figures[None]), **left_out} if None in landed.figures else left_out
        return {f"{OF_RUN}{name}": value for name, value in told.items()} if len(_keys(request)) > 1 else told

    def record_by_key(self, request: WriteRequest, written: Written) -> Mapping[str, Mapping[str, Any]]:  # noqa: ARG002
        """The figures of each partition of a run over several, where there are not too many of them."""
        known = self._landed.figures if self._landed else {}
        return {key: _told(found) for key, found in known.items() if key is not None}

    def measures(
        self, request: WriteRequest, settings: Settings, fields: Sequence[StructField], where: Column | None
    ) -> list[Measure]:
        """What is measured of these columns, in the rows for which `where` is true. A subclass may measure something else."""
        sample = F.col(_SAMPLED) if settings.sample < 1 else None
        return measures_of(fields, request.table.contract, where=where, sample=sample)

    def _observed(self, request: WriteRequest, settings: Settings) -> tuple[DataFrame, _Look]:
        """The frame under observation; or as it is, with the reason."""
        plain = request.frame
        if plain.isStreaming:
            return plain, _Look(settings, failed="a stream is written in batches, and not observed as a whole")
        try:
            fields = _chosen(plain, settings)
            measures = self._by_key(request, settings, fields[:MOST_COLUMNS])
            observation = Observation(f"observer_{uuid4().hex}")
            frame = _watched(_sampled(plain, settings), list(measures.values()), observation)
            # Over Spark Connect nothing was looked at so far: a mistake in an aggregate would fail the write.
            _ = frame.schema
        except Exception as error:  # noqa: BLE001 - whatever fails in looking is no reason not to write
            return plain, _Look(settings, failed=_in_short(error))
        return frame, _Look(settings, observation, measures, left_out=len(fields[MOST_COLUMNS:]))

    def _by_key(
        self, request: WriteRequest, settings: Settings, fields: Sequence[StructField]
    ) -> Mapping[str | None, Sequence[Measure]]:
        whole = self.measures(request, settings, fields, None)
        keys = _keys(request)
        if request.slice is None or len(keys) < 2 or len(keys) * len(whole) > MOST_AGGREGATES:
            return {None: whole}
        schema = request.frame.schema
        inside = {key: F.expr(request.slice.key_predicate(key, schema)) for key in keys}
        return {key: self.measures(request, settings, fields, where) for key, where in inside.items()}


def _watched(frame: DataFrame, looks: Sequence[Sequence[Measure]], observation: Observation) -> DataFrame:
    """The frame under observation. What the aggregates take is computed before, with the rest of the row."""
    columns = frame.columns
    names = [[f"{MARK}observed_{place}_{own}" for own in range(len(each))] for place, each in enumerate(looks)]
    inputs = [
        m.input.alias(name) for each, own in zip(looks, names, strict=True) for m, name in zip(each, own, strict=True)
    ]
    wanted = [
        aggregate
        for place, (each, own) in enumerate(zip(looks, names, strict=True))
        for aggregate in aggregates(each, _prefix(place), [F.col(identifier(name)) for name in own])
    ]
    kept = [F.col(identifier(name)) for name in columns if name != _SAMPLED]
    return frame.select("*", *inputs).observe(observation, *wanted).select(*kept)


def _keys(request: WriteRequest) -> Sequence[str]:
    """The partition keys; a stretch of a stream is none."""
    return () if request.slice is None or isinstance(request.slice, OffsetRange) else request.slice.keys


def _prefix(place: int) -> str:
    return f"k{place}m"


def _told(found: Figures) -> dict[str, Any]:
    return {**numbers(found), f"{PREFIX}/columns": dg.MetadataValue.md(markdown_table_of(found))}


def _chosen(frame: DataFrame, settings: Settings) -> list[StructField]:
    fields = {field.name: field for field in frame.schema.fields}
    missing = [name for name in settings.columns if name not in fields]
    if missing:
        raise LookupError(f"there is no column {', '.join(map(repr, missing))}")
    return [fields[name] for name in settings.columns or fields]


def _sampled(frame: DataFrame, settings: Settings) -> DataFrame:
    # An observation takes no random function itself.
    return frame.withColumn(_SAMPLED, F.rand() < settings.sample) if settings.sample < 1 else frame


def _landed(look: _Look, request: WriteRequest, written: Written) -> _Landed:
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
    return _Landed(found)


def _in_short(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:300]}"
