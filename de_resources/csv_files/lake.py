"""Files by asset key as a resource, read as tables: in the place of `Lake` for checks and readers of assets that are files."""

from collections.abc import Mapping
from typing import Any

import dagster as dg

from de_resources.contract import Contract
from de_resources.csv_files.days import CsvFolders
from de_resources.csv_files.table import DayTable
from de_resources.errors import PermanentError
from de_resources.spark import SparkEngine


class NothingPromised(PermanentError):
    """Files whose types nobody has promised: a text is all that a file has."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(
            f"`{name}` names no `contract` or no `partition_expr`, which say what the texts of its files are. Add both to its "
            "metadata."
        )


class CsvLake(CsvFolders):
    """Where the files are, and which engine reads them. Asking for a table touches neither."""

    spark: dg.ResourceDependency[SparkEngine]

    def table(self, key: dg.AssetKey, metadata: Mapping[str, Any] | None = None) -> DayTable:
        """All files of an asset, by its definition metadata: contract and column of the day. Raises `NothingPromised`."""
        metadata = metadata or {}
        if not (metadata.get("contract") and metadata.get("partition_expr")):
            raise NothingPromised(key.to_user_string())
        return DayTable(self.of(key), Contract.load(metadata["contract"]), metadata["partition_expr"])
