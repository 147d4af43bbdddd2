"""The receiving environment's lake: like any lake, but it refuses to lie inside, or around, what it holds replicas of."""

from pathlib import Path
from typing import Any

import dagster as dg
from pydantic import Field

from de_resources.compat.io_manager import CustomDbIOManager
from de_resources.delta.io_manager import SparkDeltaIOManager
from de_resources.lake import Lake
from de_resources.replication.environments import local_folder, require_apart

_APART: Any = Field(default_factory=list, description="Places of production, in which nothing may be written.")


class ReplicaLake(Lake):
    """Replicas by asset key. Asking for one touches nothing."""

    apart_from: list[str] = _APART

    def folder(self, key: dg.AssetKey) -> Path:
        """The folder of a replica that is written file by file. Raises `EnvironmentsOverlap`, `NotAFolder`."""
        require_apart(self.apart_from, self.root_uri)
        return local_folder(self.table(key).uri)


class ReplicaDeltaIOManager(SparkDeltaIOManager):
    """Stores replicas that are computed row by row. Raises `EnvironmentsOverlap` before anything is read."""

    apart_from: list[str] = _APART

    def create_io_manager(self, context: dg.InitResourceContext) -> CustomDbIOManager:
        """The manager for one run."""
        require_apart(self.apart_from, self.root_uri)
        return super().create_io_manager(context)
