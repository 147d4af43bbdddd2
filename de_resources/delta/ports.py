"""What goes in and out of the IO manager: frames of assets. Anything else is refused here, in the platform's words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, get_args

from dagster import InputContext, OutputContext
from dagster_delta import BaseDeltaLakeIOManager
from dagster_delta.io_manager.base import DeltaLakeDbClient, TableConnection
from pyspark.sql import DataFrame

from de_resources.compat.io_manager import TableSlice
from de_resources.errors import PermanentError


class NotAnAsset(PermanentError):
    """An output or input of an op that belongs to no asset: it has no table."""

    def __init__(self, what: str, name: str) -> None:
        self.what, self.name = what, name
        super().__init__(
            f"The {what} `{name}` belongs to no asset of its job, so that its table is not known. Make an asset of it, or "
            "give it an IO manager for the values of ops (`io_manager_key`), such as `FilesystemIOManager`."
        )


class NotAFrame(PermanentError):
    """An asset that returns, or wants, something else than a PySpark frame."""

    def __init__(self, asset: str, what: str, type_: str) -> None:
        self.asset, self.what, self.type = asset, what, type_
        super().__init__(
            f"The {what} of `{asset}` is {type_}, and the lake's tables are written from, and read as, PySpark frames. "
            "Use `pyspark.sql.DataFrame`, or give it another IO manager (`io_manager_key`)."
        )


class OwnLocation(DeltaLakeDbClient):
    """Tables at the manager's own root. The context has the settings of whoever wraps it, such as `BranchingIOManager`."""

    def __init__(self, manager: BaseDeltaLakeIOManager) -> None:
        self._manager = manager

    @contextmanager
    def connect(  # type: ignore[override]  # the base's is static: it knows only the context
        self,
        context: OutputContext | InputContext,  # noqa: ARG002 - the base's signature
        table_slice: TableSlice,
    ) -> Iterator[TableConnection]:
        """Where the table is, and with what it is read."""
        manager = self._manager
        client = manager.client_options.str_dict() if manager.client_options else {}
        yield TableConnection(
            table_uri=f"{manager.root_uri.rstrip('/')}/{table_slice.schema}/{table_slice.table}",
            storage_options={**manager.storage_options.str_dict(), **client},
            table_config=manager.table_config,
        )


def require_output(context: OutputContext, obj: object, written: Sequence[type]) -> None:
    """Raise `NotAnAsset`, `NotAFrame`, or for None what to do about it."""
    if not context.has_asset_key:
        raise NotAnAsset("output", f"{context.op_def.name}.{context.name}")
    asset = context.asset_key.to_user_string()
    if obj is None:
        raise PermanentError(
            f"`{asset}` returned None where a DataFrame was declared. Return the "
            "frame, or annotate the asset with `-> None` when it stores its data itself."
        )
    if not isinstance(obj, tuple(written)):
        raise NotAFrame(asset, "output", f"a `{type(obj).__name__}`")


def require_input(context: InputContext) -> None:
    """Raise `NotAnAsset`, or `NotAFrame` for an input that wants no frame. `Optional` frames are frames."""
    if not context.has_asset_key or context.upstream_output is None:
        raise NotAnAsset("input", f"{context.op_def.name}.{context.name}")
    wanted: Any = context.dagster_type.typing_type
    choices = get_args(wanted) or (wanted,)
    if wanted is not Any and not any(isinstance(each, type) and issubclass(each, DataFrame) for each in choices):
        raise NotAFrame(context.asset_key.to_user_string(), "input", f"annotated as `{wanted}`")
