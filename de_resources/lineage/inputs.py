"""Under which name an input stands in a plan: the key of its dataset, whatever it was read from.

A plan names no dataset: a Delta table, a JDBC query, a topic and a folder of files are all a `Relation`. Who reads says it by
an alias around the frame, which is part of the plan and so goes wherever the frame goes.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import dagster as dg

from de_resources.lineage.model import NOWHERE, LineageKind, Origins

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_MADE = "made in Python of "
FILE_METADATA = "_metadata"
"""The hidden column that every file relation offers; it describes files and is no column of the input."""


def alias_of(key: dg.AssetKey) -> str:
    """The alias of a dataset: its key, as people write it. A dot or a back-tick in it is kept."""
    return key.to_user_string()


def read_as(frame: DataFrame, key: dg.AssetKey) -> DataFrame:
    """The frame as what was read of a dataset: its columns are the sources of what is made of it."""
    return frame.alias(alias_of(key))


def made_of(frame: DataFrame, key: dg.AssetKey, columns: Sequence[str]) -> DataFrame:
    """A frame of rows that Python code has made of these columns of a dataset: opaque, with its inputs."""
    return frame.alias(_MADE + json.dumps([alias_of(key), *columns]))


@dataclass(frozen=True)
class InputAlias:
    """The input under whose alias a relation stands. `columns` are those that went into Python code; None: it is the input."""

    source: str
    columns: tuple[str, ...] | None = None

    @classmethod
    def of(cls, name: str, sources: Collection[str]) -> InputAlias | None:
        """The input that an alias of a plan means; None for one of somebody's own query."""
        if name in sources:
            return cls(name)
        if not name.startswith(_MADE):
            return None
        try:
            source, *columns = json.loads(name.removeprefix(_MADE))
        except ValueError:
            return None
        return cls(source, tuple(columns)) if source in sources else None

    def origins(self, column: str) -> Origins:
        """Where a column of a relation below the alias comes from."""
        if column == FILE_METADATA:
            return NOWHERE
        if self.columns is None:
            return {(self.source, column): LineageKind.DIRECT}
        return {(self.source, each): LineageKind.OPAQUE for each in self.columns}
