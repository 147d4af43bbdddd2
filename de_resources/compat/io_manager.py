"""The base of IO managers that keep tables."""

from dagster._core.execution.context.system import StepExecutionContext
from dagster._core.storage.db_io_manager import DbTypeHandler, TableSlice
from dagster_delta._db_io_manager import CustomDbIOManager

__all__ = ["CustomDbIOManager", "DbTypeHandler", "StepExecutionContext", "TableSlice"]
