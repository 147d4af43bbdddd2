"""The Delta IO manager for PySpark frames, on `dagster_delta`'s configuration surface.

    resources={"io_manager": SparkDeltaIOManager(root_uri="/lake", storage_options=LocalConfig(), spark=SparkEngine())}

Patterns *Data Overwrite* by default, *Merger* with `mode="merge"`, *Stateful Merger* with `stateful=True` besides.
An asset is configured by its definition metadata:

| key                | meaning                                                                                       |
|--------------------|-----------------------------------------------------------------------------------------------|
| `partition_expr`   | column (or `{dimension: column}`) that carries the Dagster partition                          |
| `partitioned_by`   | physical partition columns; default: the contract's, else the columns of `partition_expr`;     |
|                    | an empty list: none                                                                           |
| `contract`         | import path `package.module:Model` of the pandera model                                       |
| `mode`             | `overwrite`, `append`, `merge`, `error`, `ignore`, `create_or_replace`                        |
| `schema_mode`      | `merge`: may gain columns; `overwrite`: replaces the schema (whole tables only)               |
| `merge_keys`, `merge_predicate`, `merge_order`, `merge_deleted`, `merge_vanished`, `merge_ties` | see `merge_rule` |
| `merge_deleted_days` | how long a deleted row of a merge with an order is kept (`tombstones`); unset: for good      |
| `gathered`         | true: few partitions lie in each task of the frame, so that a range is written where it is      |
| `stateful`         | with `mode: merge`: partitions build on each other; running an old one takes the table back     |
|                    | first (`stateful_merge`). One partition per run; no `partition_expr`                           |
| `table_configuration` | properties of the table, from its creation on; the manager's `table_config` wins               |
| `root_name`, `schema` | another table name or layer than the asset key's                                           |
| `columns`          | on an input: read only these                                                                  |
| `if_missing`       | on an input: `"empty"` reads a table that does not exist yet as empty                         |

A run may change `mode`, `schema_mode` and `merge_predicate` by `context.add_output_metadata`.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from typing import Any, TypeVar, cast
from uuid import uuid4

import dagster as dg
from dagster import InputContext, OutputContext
from dagster_delta import BaseDeltaLakeIOManager, WriteMode
from dagster_delta.io_manager.base import SchemaMode, TableConnection
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from de_resources.compat.io_manager import CustomDbIOManager, DbTypeHandler, StepExecutionContext, TableSlice
from de_resources.contract import Contract
from de_resources.delta.asset_settings import require_supported, settings_of
from de_resources.delta.maintenance.restore import READS_POSITIONS
from de_resources.delta.maintenance.tombstones import Forgetting
from de_resources.delta.metadata import record
from de_resources.delta.observed_frame import ObservedFrame, record_told
from de_resources.delta.optional_inputs import IF_MISSING, may_be_missing
from de_resources.delta.ports import OwnLocation, require_input, require_output
from de_resources.delta.read_versions import ReadVersions
from de_resources.delta.slices import Slice, make_slice
from de_resources.delta.table import Stamp, Table, TableMissing, Written
from de_resources.delta.write import merge as merging
from de_resources.delta.write import overwrite as overwriting
from de_resources.delta.write import stateful_merge as stateful
from de_resources.delta.write import stream as streaming
from de_resources.delta.write.crash_points import reach
from de_resources.delta.write.frames import conform
from de_resources.delta.write.full_disk import disk_full
from de_resources.delta.write.lock import commit_lock
from de_resources.delta.write.merge_rule import merge_rule
from de_resources.delta.write.stateful_plan import Basis, NoOrder, Turn, order_of
from de_resources.engine_errors import ENGINE_ERRORS
from de_resources.errors import PermanentError
from de_resources.spark import SparkEngine
from de_resources.sql.identifiers import identifier, require_folder_name
from de_resources.storage import spark_options
from de_resources.stream_source import StreamSource

Choice = TypeVar("Choice", bound=Enum)


class NoPartitionNamed(PermanentError):
    """A partitioned asset in a run that names no partition: it would own the whole table."""

    def __init__(self, asset: str) -> None:
        self.asset = asset
        super().__init__(
            f"`{asset}` has partitions, and this run names none. Nothing was written, for it would have replaced all of them. "
            "Launch it for a partition, or for a range of partitions."
        )


class SparkDeltaIOManager(BaseDeltaLakeIOManager):
    """Writes PySpark frames to Delta tables slice by slice, and reads them back the same way.

    A rerun of a partition leaves the same rows. A run never reads or writes beyond its partitions, in any mode.
    """

    spark: dg.ResourceDependency[SparkEngine]

    @staticmethod
    def type_handlers() -> Sequence[DbTypeHandler[Any]]:
        """None are fixed: the PySpark handler needs the engine, so `create_io_manager` makes it."""
        return []

    def create_io_manager(self, context: dg.InitResourceContext) -> CustomDbIOManager:  # noqa: ARG002
        """The manager for one run. Raises `UnsupportedSetting` for what would be ignored."""
        require_supported(self)
        return DeltaTables(
            db_client=OwnLocation(self),
            database="",
            schema=self.schema_,
            type_handlers=[self._handler()],
            default_load_type=DataFrame,
            io_manager_name=type(self).__name__,
        )

    def _handler(self) -> "PySparkTypeHandler":
        """What writes and reads frames, for one run."""
        return PySparkTypeHandler(self)


class DeltaTables(CustomDbIOManager):
    """Resolves asset keys to tables; the slices themselves are typed and made by `slice_of`."""

    def handle_output(self, context: OutputContext, obj: object) -> None:
        """Write the frame and record what the write did."""
        require_output(context, obj, tuple(self._handlers_by_type))
        require_partition(context)
        table_slice = self._get_table_slice(context, context)
        with self._db_client.connect(context, table_slice) as connection:
            self._resolve_handler(type(obj)).handle_output(context, table_slice, obj, connection)

    def load_input(self, context: InputContext) -> object:
        """The frame of the asset's slice, also for an input that is annotated as `Optional`."""
        require_input(context)
        table_slice = self._get_table_slice(context, cast("OutputContext", context.upstream_output))
        with self._db_client.connect(context, table_slice) as connection:
            return self._resolve_handler(DataFrame).load_input(context, table_slice, connection)

    def _get_table_slice(self, context: OutputContext | InputContext, output_context: OutputContext) -> TableSlice:
        metadata = output_context.definition_metadata or {}
        path = context.asset_key.path
        layer = metadata.get("schema") or self._schema or (path[-2] if len(path) > 1 else "public")
        name = metadata.get("root_name") or path[-1]
        for what, part in (("layer", layer), ("dataset", name)):
            require_folder_name(part, what)  # both become folders: nothing that climbs out of the lake's root
        columns = (context.definition_metadata or {}).get("columns")
        return TableSlice(table=name, schema=layer, database=self._database, columns=columns)


class PySparkTypeHandler(DbTypeHandler[DataFrame | ObservedFrame]):
    """Writes and reads `pyspark.sql.DataFrame`, the base of classic and Connect frames; writes observed ones as well."""

    def __init__(self, config: SparkDeltaIOManager) -> None:
        self._config = config
        self._bases: dict[str, Basis | None] = {}  # what this run read of stateful tables, by their location
        self._read_versions: dict[str, ReadVersions] = {}  # by step

    @property
    def supported_types(self) -> Sequence[type[object]]:
        """PySpark frames only."""
        return [DataFrame, ObservedFrame]

    def handle_output(
        self,
        context: OutputContext,
        table_slice: TableSlice,
        obj: DataFrame | ObservedFrame,
        connection: TableConnection,
    ) -> None:
        """Conform, guard, write, confirm, record."""
        frame = obj.frame if isinstance(obj, ObservedFrame) else obj
        asset = context.asset_key.to_user_string()
        metadata = settings_of(asset, context.definition_metadata or {}, context.output_metadata or {})
        table = self._table(metadata, table_slice, connection)
        turn = self._turn(context, metadata, table)
        owned, follows = (obj.owns, obj.follows) if isinstance(obj, ObservedFrame) else (None, None)
        slice_ = None if turn else owned or slice_of(context, metadata)
        stamp = stamp_of(context, table, slice_)
        if turn is not None:
            stamp = replace(stamp, slice=turn.key)
        if owned:
            stamp = replace(stamp, facts=READS_POSITIONS)
        began = time.time()
        with self._config.spark.watched():
            try:
                # A merge compares before it writes: nobody else may write in between, not even through the same engine.
                shared = self._config.spark.shared and self._modes(metadata)[0] != WriteMode.merge
                with commit_lock(table.uri, table=table.name, shared=shared):
                    written = self._write(frame, table, slice_, stamp, metadata, turn, follows)
            except ENGINE_ERRORS as error:
                full = disk_full(error, table, began)
                if full is None:
                    raise
                raise full from error
        # A stretch of a stream is no partition, to which rows could be attributed.
        attributed = None if owned else slice_
        record(context, self._stored(table, stamp), attributed, written, frame, self._config.spark.label)
        # What an earlier attempt committed was computed from what that one had read, which nobody knows any more.
        read = self._read_versions.get(context.step_key)
        if read is not None and not written.repeated:
            read.record(context)
        # A write that was skipped, or whose counters were lost, has nothing to tell, and would be waited for.
        if isinstance(obj, ObservedFrame) and written.rows is not None and not written.skipped:
            record_told(context, obj.tell())
        reach("recorded", table.name)

    def load_input(self, context: InputContext, table_slice: TableSlice, connection: TableConnection) -> DataFrame:
        """The slice of the upstream table that the partition mapping names, lazily."""
        upstream = cast("OutputContext", context.upstream_output)
        metadata = upstream.definition_metadata or {}
        table = self._table(metadata, table_slice, connection)
        self._note(context, table)
        with self._config.spark.watched():
            stateful_ = bool(metadata.get("stateful")) and context.has_asset_partitions
            frame = self._read(context, table, as_of_partition=stateful_)
            slice_ = None if stateful_ else slice_of(context, metadata)
            if slice_ is not None:
                frame = frame.where(F.expr(slice_.predicate(frame.schema)))
            columns = table_slice.columns or frame.columns
            # The alias names the dataset in the plan, from which column lineage is read.
            return frame.select(*(F.col(identifier(c)) for c in columns)).alias(table.name)

    def _read(self, context: InputContext, table: Table, *, as_of_partition: bool = False) -> DataFrame:
        session = self._config.spark.spark_session
        itself = _reads_itself(context)
        optional = may_be_missing(table, (context.definition_metadata or {}).get(IF_MISSING)) or itself
        empty = table.contract.struct_type() if optional and table.contract else None
        try:
            if not as_of_partition:
                return table.read(session)
            asset = context.asset_key.to_user_string()
            order = order_of(asset, context.asset_partitions_def)
            frame, basis = stateful.read(session, table, asset, context.asset_partition_keys, order, if_missing=empty)
        except TableMissing:
            if empty is None:
                raise TableMissing(table.name, has_contract=table.contract is not None) from None
            return session.createDataFrame([], empty)
        if itself:
            self._bases[table.uri] = basis
        return frame

    def _write(
        self,
        frame: DataFrame,
        table: Table,
        slice_: Slice | None,
        stamp: Stamp,
        metadata: Mapping[str, Any],
        turn: Turn | None,
        follows: StreamSource | None,
    ) -> Written:
        session = self._config.spark.spark_session
        mode, schema_mode = self._modes(metadata)
        evolve = schema_mode == SchemaMode.merge
        replace_schema = schema_mode == SchemaMode.overwrite or mode == WriteMode.create_or_replace
        if replace_schema and mode in (WriteMode.append, WriteMode.merge):
            raise PermanentError(f"`{table.name}` has the mode `{mode.value}`, which cannot replace its schema.")
        for declared in self._declared(table, replace_schema):
            frame = conform(frame, table.name, declared, allow_new=evolve)
        if turn is not None:
            rule = merge_rule(metadata, table.contract, self._config.merge_config)
            return stateful.merge(session, table, frame, stamp, rule=rule, turn=turn, evolve=evolve)
        if frame.isStreaming:
            return streaming.drain(session, table, frame, stamp, follows)
        log = table.log()
        # A first write that failed leaves a blank table behind, and has to be possible again.
        if log is not None and not log.is_blank:
            if mode == WriteMode.error:
                raise PermanentError(
                    f"`{table.name}` exists and its mode is `error`. Choose another mode, or drop the table."
                )
            if mode == WriteMode.ignore:
                return Written(log.version, None, None, None, 0.0, skipped="the table exists and its mode is `ignore`")
        if mode == WriteMode.merge:
            Forgetting.of(table.name, metadata)  # what the maintenance could not do is refused with the first write
            rule = merge_rule(metadata, table.contract, self._config.merge_config)
            return merging.merge(session, table, frame, stamp, rule=rule, slice_=slice_, evolve=evolve)
        if mode == WriteMode.append:
            return overwriting.append(session, table, frame, stamp, slice_=slice_, evolve=evolve)
        return overwriting.replace(
            session,
            table,
            frame,
            stamp,
            slice_=slice_,
            evolve=evolve,
            replace_schema=replace_schema,
            gathered=bool(metadata.get("gathered")),
        )

    def _note(self, context: InputContext, table: Table) -> None:
        """Remember which version is about to be read."""
        step = _step(context)
        if step is not None:
            self._read_versions.setdefault(step.step.key, ReadVersions()).note(table)

    def _stored(self, table: Table, stamp: Stamp) -> Table:  # noqa: ARG002 - one that keeps versions asks whose write it was
        """The table that holds what was just written."""
        return table

    def _turn(self, context: OutputContext, metadata: Mapping[str, Any], table: Table) -> Turn | None:
        """The partition whose turn it is in a stateful merge; None for all other assets."""
        if not metadata.get("stateful"):
            return None
        asset = context.asset_key.to_user_string()
        if self._modes(metadata)[0] != WriteMode.merge:
            raise NoOrder(asset, "only merges have a state. Add `mode: merge`")
        if not context.has_asset_partitions or "partition_expr" in metadata:
            raise NoOrder(
                asset,
                "it needs partitions, and no `partition_expr`, since a row belongs to all partitions so far. "
                "Add `partitions_def`, or leave `stateful` out",
            )
        tags = context.step_context.dagster_run.tags
        turn = Turn.of(asset, context.asset_partition_keys, context.asset_partitions_def, tags)
        return replace(turn, basis=self._bases.get(table.uri))

    def _modes(self, metadata: Mapping[str, Any]) -> tuple[WriteMode, SchemaMode | None]:
        schema_mode = metadata.get("schema_mode") or self._config.schema_mode
        return (
            _choice(WriteMode, "mode", metadata.get("mode") or self._config.mode),
            _choice(SchemaMode, "schema_mode", schema_mode) if schema_mode else None,
        )

    def _declared(self, table: Table, replace_schema: bool) -> Iterator[StructType]:
        """What the frame has to look like: the contract, and the table as it is. The first write may lack both.

        Delta alone would accept a frame without some of the table's columns and fill them with nulls.
        """
        if table.contract is not None:
            yield table.contract.struct_type()
        if not replace_schema and table.log() is not None:
            yield table.read(self._config.spark.spark_session).schema

    def _table(self, metadata: Mapping[str, Any], table_slice: TableSlice, connection: TableConnection) -> Table:
        contract = Contract.load(metadata["contract"]) if metadata.get("contract") else None
        layout = metadata.get("partitioned_by", contract.partitioned_by if contract else None)
        expression = metadata.get("partition_expr")
        if "partitioned_by" not in metadata and not layout and expression:
            layout = _columns_in_order(expression)
        return Table(
            name=f"{table_slice.schema}.{table_slice.table}",
            uri=connection.table_uri,
            contract=contract,
            partitioned_by=tuple(layout or ()),
            properties={**metadata.get("table_configuration", {}), **(connection.table_config or {})},
            storage_options={k: v for k, v in connection.storage_options.items() if k != "provider"},
            spark_options=spark_options(self._config.storage_options),
        )


def require_partition(context: OutputContext) -> None:
    """Raise `NoPartitionNamed` unless the run says what it owns. Dagster lets such a run through, also for the key `""`."""
    partitioned = context.has_asset_key and context.step_context.has_asset_partitions_for_output(context.name)
    if partitioned and not context.has_asset_partitions:
        raise NoPartitionNamed(context.asset_key.to_user_string())


def slice_of(context: OutputContext | InputContext, metadata: Mapping[str, Any]) -> Slice | None:
    """The rows that the run may touch: None for an unpartitioned asset."""
    if not context.has_asset_partitions:
        return None
    expression = metadata.get("partition_expr")
    if expression is None:
        raise PermanentError(
            f"`{context.asset_key.to_user_string()}` has partitions but does not say which column carries them. "
            'Add `metadata={"partition_expr": "<column>"}` to the asset.'
        )
    return make_slice(context.asset_partition_keys, context.asset_partitions_def, expression)


def stamp_of(context: OutputContext, table: Table, slice_: Slice | None) -> Stamp:
    """Who writes. Automatic retries of one run share their origin; a person's re-execution is a new write."""
    run = context.step_context.dagster_run
    retried = "dagster/retry_number" in run.tags and run.root_run_id
    origin = run.root_run_id if retried and run.root_run_id else run.run_id
    where = slice_.describe() if slice_ else "all"
    attempt = f"{run.run_id}/{context.step_key}/{uuid4().hex}"
    writer = context.asset_key.to_user_string()
    return Stamp(table=table.name, writer=writer, slice=where, run=run.run_id, origin=origin, attempt=attempt)


def _columns_in_order(expression: str | Mapping[str, str]) -> Sequence[str]:
    """The columns of `partition_expr`, in the order of their dimensions' names: Dagster's, and so dagster-delta's layout."""
    if isinstance(expression, str):
        return [expression]
    return list(dict.fromkeys(expression[dimension] for dimension in sorted(expression)))


def _choice(choices: type[Choice], what: str, value: str) -> Choice:
    try:
        return choices(value)
    except ValueError:
        known = ", ".join(f"`{c.value}`" for c in choices)
        raise PermanentError(f"`{what}` is {value!r}; it can be {known}.") from None


def _reads_itself(context: InputContext) -> bool:
    """Whether the input is the asset's own earlier partitions, which do not exist before the first run."""
    step = _step(context)
    return step is not None and step.assets_def is not None and context.asset_key in step.assets_def.keys


def _step(context: InputContext) -> StepExecutionContext | None:
    """The step that reads; None where somebody reads outside of a run (`defs.load_asset_value`)."""
    try:
        return context.step_context
    except dg.DagsterInvariantViolationError:
        return None
