"""The Delta IO manager for PySpark frames, on `dagster_delta`'s configuration surface.

    resources={"io_manager": SparkDeltaIOManager(root_uri="/lake", storage_options=LocalConfig(), spark=SparkEngine())}

Patterns *Data Overwrite* by default, *Merger* with `mode="merge"`, *Stateful Merger* with `stateful=True` besides.
An asset is configured by its definition metadata:

| key                | meaning                                                                                       |
|--------------------|-----------------------------------------------------------------------------------------------|
| `partition_expr`   | column (or `{dimension: column}`) that carries the Dagster partition; on an input: another      |
|                    | column, by which this reader takes its partitions from the table                               |
| `partitioned_by`   | physical partition columns; default: the contract's, else the columns of `partition_expr`;     |
|                    | an empty list: none                                                                           |
| `contract`         | import path `package.module:Model` of the pandera model                                       |
| `mode`             | `overwrite`, `append`, `merge`, `error`, `ignore`, `create_or_replace`                        |
| `schema_mode`      | `merge`: may gain columns; `overwrite`: replaces the schema (whole tables only)               |
| `merge_keys`, `merge_predicate`, `merge_order`, `merge_deleted`, `merge_vanished`, `merge_ties` | see `merge_rule` |
| `merge_deleted_days` | how long a deleted row of a merge with an order is kept (`tombstones`); default: the      |
|                    | contract's `deleted_days`, else for good                                                      |
| `pre_clustered`    | true: few partitions lie in each task of the frame, so that a range is written where it is    |
| `stateful`         | with `mode: merge`: partitions build on each other; running an old one takes the table back     |
|                    | first (`stateful_merge`). One partition per run; no `partition_expr`                           |
| `writer`           | import path `package.module:Class` of a `Writer` around the asset's writes, or a list of them     |
| `reader`           | import path of a `Reader` around what is read of the asset, or a list of them; also on an input |
| `audits`           | import path `package.module:NAME` of the audits of `AuditedPublish`                              |
| `windows`          | import path `package.module:NAME` of the windows that `AuditedWindows` publishes                 |
| `table_configuration` | properties of the table, from its creation on; the manager's `table_config` wins               |
| `root_name`, `schema` | another table name or layer than the asset key's                                           |
| `columns`          | on an input: read only these                                                                  |
| `if_missing`       | on an input: `"empty"` reads a table that does not exist yet as empty                         |
| `held`             | `"left out"`: in a range, partitions that a gate upstream holds back are left out (`held_back`)  |

A run may change `mode`, `schema_mode` and `merge_predicate` by `context.add_output_metadata`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast
from uuid import uuid4

import dagster as dg
from dagster import InputContext, OutputContext
from dagster_delta import BaseDeltaLakeIOManager, WriteMode
from dagster_delta.io_manager.base import TableConnection
from pydantic import Field
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from de_resources.compat.io_manager import CustomDbIOManager, DbTypeHandler, StepExecutionContext, TableSlice
from de_resources.contract import Contract
from de_resources.delta.asset_settings import MIGRATIONS, modes_of, require_supported, settings_of
from de_resources.delta.maintenance.restore import READS_POSITIONS
from de_resources.delta.metadata import record
from de_resources.delta.named_readers import naming_readers
from de_resources.delta.observed_frame import ObservedFrame, record_metadata
from de_resources.delta.optional_columns import with_optional_columns
from de_resources.delta.optional_inputs import IF_MISSING, may_be_missing
from de_resources.delta.ports import OwnLocation, require_input, require_output
from de_resources.delta.read.reader import Readers, readers_of
from de_resources.delta.read.request import ReadRequest
from de_resources.delta.read_versions import reads_of
from de_resources.delta.slices import Slice, make_slice
from de_resources.delta.table import CommitInfo, Table, TableMissing, Written
from de_resources.delta.write import stateful_merge as stateful
from de_resources.delta.write.crash_points import crash_point
from de_resources.delta.write.full_disk import room_explained
from de_resources.delta.write.lock import commit_lock
from de_resources.delta.write.modes import write_table
from de_resources.delta.write.request import WriteRequest
from de_resources.delta.write.stateful_plan import NoOrder, PartitionRun, ReadState, order_of
from de_resources.delta.write.stored_form import AS_IT_IS, StoredForm
from de_resources.delta.write.writer import Writer, Writers, writers_of
from de_resources.errors import PermanentError
from de_resources.gathering import tell_completeness
from de_resources.held_back import leave_out, leaves_out_held
from de_resources.lineage.inputs import read_as
from de_resources.retries import origin_of
from de_resources.spark import SparkEngine
from de_resources.sql.identifiers import identifier, require_folder_name
from de_resources.storage import InFolders


class NoPartitionNamed(PermanentError):
    """A partitioned asset in a run that names no partition: it would own the whole table."""

    def __init__(self, asset: str) -> None:
        self.asset = asset
        super().__init__(
            f"`{asset}` has partitions, and this run names none. Nothing was written, for it would have replaced all of them. "
            "Launch it for a partition, or for a range of partitions."
        )


class SparkDeltaIOManager(InFolders, BaseDeltaLakeIOManager):
    """Writes PySpark frames to Delta tables slice by slice, and reads them back the same way.

    A rerun of a partition leaves the same rows. A run never reads or writes beyond its partitions, in any mode.
    """

    spark: dg.ResourceDependency[SparkEngine]
    job_version: str = Field(default="", description="Version of the code that writes; told in each commit.")

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
            type_handlers=[PySparkTypeHandler(self)],
            default_load_type=DataFrame,
            io_manager_name=type(self).__name__,
        )

    def writers(self) -> Sequence[Writer]:
        """What every write of this manager goes through, outermost first, inside of what the asset names."""
        return ()

    def stored_as(self, table: Table) -> Table:
        """How this manager reads and writes what lies at the place of a table: here, as that table."""
        return table


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
        if _leaves_out(context):
            leave_out(context)
        if _step(context) is not None:
            tell_completeness(context)
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
        self._bases: dict[str, ReadState | None] = {}  # what this run read of stateful tables, by their location
        self._inputs: dict[str, list[tuple[Table, Slice | None]]] = {}  # by step

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
        """Prepare, match the schema, guard, write, confirm, record."""
        output = obj if isinstance(obj, ObservedFrame) else ObservedFrame(obj, metadata=dict)
        with self._config.spark.watched():
            asked = self._request(context, output, table_slice, connection)
            writers = writers_of(asked.stamp.writer, asked.metadata, self._config.writers())
            with naming_readers(context, asked.table.contract):
                request = writers.prepare(asked)
                request = replace(request, form=form_of(request, writers))
                written = self._write(request, writers)
        # A stretch of a stream is no partition, to which rows could be attributed.
        attributed = None if output.owns else request.slice
        record(context, _recorded(request, written), attributed, written, request.frame, self._config.spark.label)
        context.add_output_metadata(writers.record(request, written))
        for key, metadata in writers.record_by_key(request, written).items():
            context.step_context.add_asset_metadata(metadata, context.asset_key, key)
        # What an earlier attempt committed was computed from what that one had read, which nobody knows any more.
        if not written.repeated:
            reads_of(context.step_context).record(context)
        # A write that was skipped, or whose counters were lost, has nothing to tell, and would be waited for.
        if written.rows is not None and not written.skipped:
            record_metadata(context, output.metadata())
        crash_point("recorded", request.table.name)

    def _request(
        self, context: OutputContext, output: ObservedFrame, table_slice: TableSlice, connection: TableConnection
    ) -> WriteRequest:
        """What the run asks for, by the settings of its asset."""
        asset = context.asset_key.to_user_string()
        metadata = settings_of(asset, context.definition_metadata or {}, context.output_metadata or {})
        table = self._table(metadata, table_slice, connection)
        mode, schema_mode = modes_of(self._config, metadata)
        turn = self._turn(context, metadata, mode, table)
        slice_ = None if turn else output.owns or slice_of(context, metadata)
        stamp = stamp_of(context, table, slice_, self._config.job_version)
        if turn is not None:
            stamp = replace(stamp, slice=turn.key)
        if output.owns:
            stamp = replace(stamp, facts=READS_POSITIONS)
        return WriteRequest(
            session=self._config.spark.spark_session,
            frame=output.frame,
            table=table,
            slice=slice_,
            stamp=stamp,
            mode=mode,
            schema_mode=schema_mode,
            turn=turn,
            follows=output.follows,
            settings=output.settings,
            metadata=metadata,
            merge_config=self._config.merge_config,
            inputs=tuple(self._inputs.get(context.step_key, ())),
        )

    def _write(self, request: WriteRequest, writers: Writers) -> Written:
        # A merge compares before it writes: nobody else may write in between, not even through the same engine.
        shared = self._config.spark.shared and request.mode != WriteMode.merge
        table = request.table
        with room_explained(table), commit_lock(table.uri, table=table.name, shared=shared):
            return writers.write(request, write_table)

    def load_input(self, context: InputContext, table_slice: TableSlice, connection: TableConnection) -> DataFrame:
        """The slice of the upstream table that the partition mapping names, lazily."""
        upstream = cast("OutputContext", context.upstream_output)
        metadata = upstream.definition_metadata or {}
        table = self._table(metadata, table_slice, connection)
        readers = readers_of(context.asset_key.to_user_string(), metadata, context.definition_metadata or {})
        with self._config.spark.watched():
            stateful_ = bool(metadata.get("stateful")) and context.has_asset_partitions
            session, input_ = self._config.spark.spark_session, context.definition_metadata or {}
            slice_ = None if stateful_ else slice_of(context, {**metadata, **_taken_by(input_)})
            request = readers.prepare(ReadRequest(session, table, slice_, metadata=metadata, input=input_))
            self._note(context, request)
            self._remember(context, request.table, request.slice)
            frame = readers.read(request, partial(self._stored, context, as_of_partition=stateful_))
            if not metadata.get(MIGRATIONS):
                # Of a migrated table a missing column is one that was removed.
                frame = with_optional_columns(frame, table.contract)
            columns = table_slice.columns or frame.columns
            return read_as(frame.select(*(F.col(identifier(c)) for c in columns)), context.asset_key)

    def _stored(self, context: InputContext, request: ReadRequest, *, as_of_partition: bool) -> DataFrame:
        """The rows of a request as they are stored."""
        slice_ = request.slice
        table = request.table if slice_ is None else request.table.limited_to(slice_.keys)
        frame = self._read(context, replace(request, table=table), as_of_partition=as_of_partition)
        return frame if slice_ is None else frame.where(F.expr(slice_.predicate(frame.schema)))

    def _read(self, context: InputContext, request: ReadRequest, *, as_of_partition: bool) -> DataFrame:
        session, table = request.session, request.table
        itself = _reads_itself(context)
        optional = may_be_missing(table, (context.definition_metadata or {}).get(IF_MISSING)) or itself
        empty = table.contract.struct_type() if optional and table.contract else None
        try:
            if request.version is not None or not as_of_partition:
                return table.read(session, request.version)
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

    def _note(self, context: InputContext, request: ReadRequest) -> None:
        """Remember which version is about to be read."""
        step = _step(context)
        if step is not None:
            reads_of(step).note(request.table, request.version)

    def _remember(self, context: InputContext, table: Table, slice_: Slice | None) -> None:
        """Remember what the step's frame is computed from."""
        step = _step(context)
        if step is not None:
            self._inputs.setdefault(step.step.key, []).append((table, slice_))

    def _turn(
        self, context: OutputContext, metadata: Mapping[str, Any], mode: WriteMode, table: Table
    ) -> PartitionRun | None:
        """The partition whose turn it is in a stateful merge; None for all other assets."""
        if not metadata.get("stateful"):
            return None
        asset = context.asset_key.to_user_string()
        if mode != WriteMode.merge:
            raise NoOrder(asset, "only merges have a state. Add `mode: merge`")
        if not context.has_asset_partitions or "partition_expr" in metadata:
            raise NoOrder(
                asset,
                "it needs partitions, and no `partition_expr`, since a row belongs to all partitions so far. "
                "Add `partitions_def`, or leave `stateful` out",
            )
        tags = context.step_context.dagster_run.tags
        turn = PartitionRun.of(asset, context.asset_partition_keys, context.asset_partitions_def, tags)
        return replace(turn, basis=self._bases.get(table.uri))

    def _table(self, metadata: Mapping[str, Any], table_slice: TableSlice, connection: TableConnection) -> Table:
        contract = Contract.load(metadata["contract"]) if metadata.get("contract") else None
        layout = metadata.get("partitioned_by", contract.partitioned_by if contract else None)
        expression = metadata.get("partition_expr")
        if "partitioned_by" not in metadata and not layout and expression:
            layout = _columns_in_order(expression)
        plain = Table(
            name=f"{table_slice.schema}.{table_slice.table}",
            uri=connection.table_uri,
            contract=contract,
            partitioned_by=tuple(layout or ()),
            properties={**metadata.get("table_configuration", {}), **(connection.table_config or {})},
            storage_options={k: v for k, v in connection.storage_options.items() if k != "provider"},
            enforced=bool(metadata.get("constraints")),
        )
        return self._config.stored_as(plain)


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


def _taken_by(input_: Mapping[str, Any]) -> Mapping[str, Any]:
    """The column of an input's own that carries its partitions: a row may belong to another one than it is kept in."""
    return {name: input_[name] for name in ("partition_expr",) if name in input_}


def form_of(request: WriteRequest, writers: Writers) -> StoredForm:
    """How the writers store rows, and how the asset's readers read them back; of none that store otherwise: as they are."""
    if not writers.store_otherwise:
        return AS_IT_IS
    readers = readers_of(request.stamp.writer, request.metadata, {})
    decode = partial(_read_back, readers, request) if readers.layers else None
    return StoredForm(partial(writers.stored, request), decode)


def _read_back(readers: Readers, request: WriteRequest, stored: DataFrame) -> DataFrame:
    """These rows as the readers give them, whichever version or table they would choose: it is these that will change."""
    asked = ReadRequest(request.session, request.table, request.slice, metadata=request.metadata)
    return readers.read(readers.prepare(asked), lambda _: stored)


def _recorded(request: WriteRequest, written: Written) -> Table:
    """The table that was written, with the contract that says what its columns mean and which of them are personal."""
    return replace(written.table, contract=request.table.contract) if written.table else request.table


def stamp_of(context: OutputContext, table: Table, slice_: Slice | None, job_version: str = "") -> CommitInfo:
    """Who writes. Automatic retries of one run share their origin; a person's re-execution is a new write."""
    run = context.step_context.dagster_run
    where = slice_.describe() if slice_ else "all"
    attempt = f"{run.run_id}/{context.step_key}/{uuid4().hex}"
    writer = context.asset_key.to_user_string()
    return CommitInfo(
        table=table.name,
        writer=writer,
        slice=where,
        run=run.run_id,
        origin=origin_of(run),
        attempt=attempt,
        job_version=job_version,
    )


def _columns_in_order(expression: str | Mapping[str, str]) -> Sequence[str]:
    """The columns of `partition_expr`, in the order of their dimensions' names: Dagster's, and so dagster-delta's layout."""
    if isinstance(expression, str):
        return [expression]
    return list(dict.fromkeys(expression[dimension] for dimension in sorted(expression)))


def _leaves_out(context: InputContext) -> bool:
    """Whether the step that reads says that it leaves out what a gate holds back."""
    step = _step(context)
    return step is not None and step.assets_def is not None and leaves_out_held(step.assets_def)


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
