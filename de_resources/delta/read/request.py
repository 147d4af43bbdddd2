"""One read of an input as a value: which rows of which table, as of when.

The IO manager makes it from an input and its run. A reader reads it, or makes another one of it (`dataclasses.replace`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import SparkSession

from de_resources.delta.slices import Slice
from de_resources.delta.table import Table


@dataclass(frozen=True, eq=False)
class ReadRequest:
    """What shall be read.

    `slice`: the rows that the input maps to; None where that is the whole table. `version`: of the table; None: the newest.
    `metadata`: the settings of the asset that is read. `input`: those of the input, which belong to who reads.
    """

    session: SparkSession
    table: Table
    slice: Slice | None
    version: int | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    input: Mapping[str, Any] = field(default_factory=dict)
