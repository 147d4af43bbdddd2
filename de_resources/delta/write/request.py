"""One write as a value: what goes where, by which rules, and in whose name.

The IO manager makes it from an asset and its run. A writer reads it, or makes another one of it (`dataclasses.replace`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dagster_delta import MergeConfig, WriteMode
from dagster_delta.io_manager.base import SchemaMode
from pyspark.sql import DataFrame, SparkSession

from de_resources.delta.slices import Slice
from de_resources.delta.table import CommitInfo, Table
from de_resources.delta.write.merge import MergeRule
from de_resources.delta.write.merge_rule import merge_rule
from de_resources.delta.write.stateful_plan import PartitionRun
from de_resources.delta.write.stored_form import AS_IT_IS, StoredForm
from de_resources.engine.stream_source import StreamSource


@dataclass(frozen=True, eq=False)
class WriteRequest:
    """What shall be written.

    `slice`: the rows that the run owns; None where it owns the whole table. `stamp`: who writes, as the commit will say.
    `turn`: the partition of a stateful merge. `follows`: the source of a stream whose offsets do not say which one it is.
    `settings`: the engine's, for the query of a stream.
    `metadata`: the settings of the asset, with what its run changes. `merge_config`: the merge of the manager.
    `inputs`: the tables that the frame was computed from, each with the slice that was read. `form`: how rows are stored.
    """

    session: SparkSession
    frame: DataFrame
    table: Table
    slice: Slice | None
    stamp: CommitInfo
    mode: WriteMode = WriteMode.overwrite
    schema_mode: SchemaMode | None = None
    turn: PartitionRun | None = None
    follows: StreamSource | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    merge_config: MergeConfig | None = None
    inputs: tuple[tuple[Table, Slice | None], ...] = ()
    form: StoredForm = AS_IT_IS

    @property
    def rule(self) -> MergeRule:
        """How rows of one key are reconciled, in a merge. Raises `PermanentError` for settings that say no such rule."""
        return merge_rule(self.metadata, self.table.contract, self.merge_config)

    @property
    def evolves(self) -> bool:
        """Whether the table may gain columns."""
        return self.schema_mode == SchemaMode.merge

    @property
    def replaces_schema(self) -> bool:
        """Whether the table gets the columns of the frame in place of its own."""
        return self.schema_mode == SchemaMode.overwrite or self.mode == WriteMode.create_or_replace
