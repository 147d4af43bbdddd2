"""What was seen of a stream: the figures of each micro-batch that was committed, and of all of them as one.

A micro-batch is observed on its own job, as a write of a batch is; nulls and bounds are told by the statistics of its commit. A
batch that a restarted stream repeats, because its commit was not noted any more, is computed by nobody and told by nobody.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql.types import StructField

from de_resources.delta.log import TableLog
from de_resources.delta.table import ObservedBatch, Written
from de_resources.observers.figures_shown import cell
from de_resources.observers.log_statistics import told_by
from de_resources.observers.measures import NULLS, Figures, Measure, figures, joined, together, without_nulls

MOST_SHOWN = 50
"""As many micro-batches are shown, the newest."""


@dataclass(frozen=True)
class Seen:
    """A committed micro-batch and its figures. `number` counts the batches of the stream, from its beginning on."""

    number: int
    version: int
    figures: Figures


@dataclass(frozen=True)
class StreamLook:
    """One look at a stream: under which name, what is measured of which columns, and of which the commits tell."""

    name: str
    measures: Sequence[Measure]
    fields: Sequence[StructField]
    told: frozenset[str]
    bounded: frozenset[str]
    """The columns whose values may be shown."""

    def seen(self, log: TableLog, written: Written, prefix: str) -> list[Seen]:
        """The micro-batches of a write, oldest first. Raises `LookupError` where the engine did not tell of one of them."""
        if not written.batches or any(self.name not in batch.observed for batch in written.batches):
            raise LookupError("the engine did not tell of every micro-batch")
        return [self._seen(log, batch, prefix) for batch in written.batches]

    def _seen(self, log: TableLog, batch: ObservedBatch, prefix: str) -> Seen:
        found = figures(self.measures, batch.observed[self.name], prefix)
        number, version = int(batch.commit.parameters["epochId"]), batch.commit.version
        committed = batch.commit.metric("numOutputRows")
        if found.rows > committed:
            # A stage that was computed twice is counted twice.
            raise LookupError(f"{found.rows:,} rows were seen of micro-batch {number} and {committed:,} committed")
        fields = [field for field in self.fields if field.name in self.told]
        told = told_by(log, version, fields, lambda _: None, self.bounded) if fields else {}
        if told is None or sum(each.rows for each in told.values()) != found.rows:
            return Seen(number, version, without_nulls(found, self.told))
        columns: Mapping[str, Mapping[str, Any]] = next(iter(told.values())).columns if told else {}
        return Seen(number, version, joined(found, columns, self.fields))


def of_all(seen: Sequence[Seen]) -> Figures:
    """The figures of all micro-batches as one."""
    return together([each.figures for each in seen])


def markdown_of(seen: Sequence[Seen]) -> str:
    """The newest micro-batches, one row each: its rows, and the columns that have nulls."""
    lines = ["| micro-batch | version | rows | nulls |", "|---|---|---|---|"]
    for each in seen[-MOST_SHOWN:]:
        nulls = ((column, own.get(NULLS)) for column, own in each.figures.columns.items())
        told = ", ".join(f"{cell(column)} {count:,}" for column, count in nulls if isinstance(count, int) and count)
        lines.append(f"| {each.number} | {each.version} | {each.figures.rows:,} | {told} |")
    return "\n".join(lines)
