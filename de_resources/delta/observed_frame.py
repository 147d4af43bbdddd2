"""A frame that brings metadata, which are known once it was written.

An asset returns it in place of a plain frame; the IO manager writes the frame and then records what it tells as metadata
of the materialisation. What is known comes from an `Observation` on the write's own job, never from a job of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import dagster as dg
from pyspark.sql import DataFrame

from de_resources.delta.slices import Slice
from de_resources.engine.stream_source import StreamSource


class Markdown(str):
    """Text that the UI shows as Markdown. A transform makes it, and need not know of Dagster."""

    __slots__ = ()


MetadataByWindow = Mapping[datetime | None, Mapping[str, Any]]
"""Metadata by the start of a time window (UTC), or by None for the frame as a whole: plain values, dictionaries, `Markdown`."""


@dataclass(frozen=True)
class ObservedFrame:
    """`metadata` is called once, after `frame` was written; it would wait for ever for a write that was skipped.

    `owns` is the slice that the write replaces, for a run whose slice is no partition: a stretch of a stream.
    `follows` is the source of a stream whose offsets do not say which one it is: a topic.
    `settings` are the engine's for the query of this stream alone.
    """

    frame: DataFrame
    metadata: Callable[[], MetadataByWindow]
    owns: Slice | None = None
    follows: StreamSource | None = None
    settings: Mapping[str, str] = field(default_factory=dict)

    def transform(self, function: Callable[[DataFrame], DataFrame]) -> ObservedFrame:
        """Another frame computed from this one, with the same metadata."""
        return replace(self, frame=function(self.frame))

    def and_then(self, function: Callable[[DataFrame], ObservedFrame]) -> ObservedFrame:
        """An observed frame computed from this one, with the metadata of both."""
        after = function(self.frame)

        def metadata() -> MetadataByWindow:
            first, second = self.metadata(), after.metadata()
            return {start: {**first.get(start, {}), **second.get(start, {})} for start in {**first, **second}}

        return replace(self, frame=after.frame, metadata=metadata)

    def with_metadata(self, more: MetadataByWindow) -> ObservedFrame:
        """The same frame with more metadata: what was known before the write."""

        def metadata() -> MetadataByWindow:
            known = self.metadata()
            return {start: {**known.get(start, {}), **more.get(start, {})} for start in {**known, **more}}

        return replace(self, metadata=metadata)


def record_metadata(context: dg.OutputContext, known: MetadataByWindow) -> None:
    """Attach metadata to the materialisations: of the window's partition, or of all that the run wrote."""
    for start, metadata in known.items():
        shown = {name: _shown(value) for name, value in metadata.items()}
        if start is None:
            context.add_output_metadata(shown)
        else:
            key = _partition_key(context, start)
            context.step_context.add_asset_metadata(shown, context.asset_key, key)


def _shown(value: Any) -> Any:
    """As Dagster shows it: of text it would not see that it is Markdown, and other plain values it knows by their type."""
    return dg.MetadataValue.md(str(value)) if isinstance(value, Markdown) else value


def _partition_key(context: dg.OutputContext, start: datetime) -> str:
    partitions = context.asset_partitions_def
    if not isinstance(partitions, dg.TimeWindowPartitionsDefinition):
        raise TypeError("metadata by time window needs an asset with time partitions")
    return partitions.get_partition_key_for_timestamp(start.timestamp())
