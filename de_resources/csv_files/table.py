"""All days of a dataset as one frame, whatever columns each of its files has: for who reads both sides of a cut-over.

What columns a file has, its own first line says, and no date that somebody would have to know. Columns of the contract that a
file does not have are null in its rows; others than the contract's are left out.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from de_resources.contract import Contract
from de_resources.csv_files.days import DayFiles, read_texts
from de_resources.sql.identifiers import identifier

_DAY = r"^(.*)\.csv$"


@dataclass(frozen=True)
class DayTable:
    """The files of a dataset as a table with the columns of the contract. `day` is the one that is a file's name.

    `keys` are the days to look at; None: all.
    """

    files: DayFiles
    contract: Contract
    day: str
    keys: tuple[str, ...] | None = None

    def limited_to(self, keys: Sequence[str]) -> DayTable:
        """Only these days: the files of others are not looked at."""
        return replace(self, keys=tuple(keys))

    def read(self, session: SparkSession, version: int | None = None) -> DataFrame:  # noqa: ARG002 - files have none
        """The rows as they are now, lazily. A text that is no value of its column's type is null."""
        parts = [self._part(session, *each) for each in self._by_layout().items()]
        empty = session.createDataFrame([], self.contract.struct_type())
        return reduce(DataFrame.unionByName, parts) if parts else empty

    def layout(self, key: str) -> tuple[str, ...]:
        """The columns of a day's file, in its order."""
        return tuple(next(csv.reader([self.files.header_of(key)])))

    def _by_layout(self) -> dict[tuple[str, ...], list[str]]:
        found: dict[tuple[str, ...], list[str]] = {}
        for key in self.files.days():
            if self.keys is None or key in self.keys:
                found.setdefault(self.layout(key), []).append(key)
        return found

    def _part(self, session: SparkSession, layout: tuple[str, ...], keys: Sequence[str]) -> DataFrame:
        """The rows of the days whose files have these columns."""
        texts = read_texts(session, [self.files.file(key) for key in keys], layout)
        values = {name: F.col(identifier(name)) for name in layout}
        values[self.day] = F.regexp_extract("_metadata.file_name", _DAY, 1)
        return texts.select(
            *(
                values.get(field.name, F.lit(None)).try_cast(field.dataType).alias(field.name)
                for field in self.contract.struct_type().fields
            )
        )
