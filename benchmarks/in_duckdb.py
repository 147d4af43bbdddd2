"""The same question to DuckDB, on the same Parquet files: an engine of one machine, for orientation beside one of a cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import duckdb
from pyspark.sql import DataFrame, SparkSession

NAME = "DuckDB"
# An engine of Spark's, warm, lives in the same machine meanwhile.
_MEMORY = "8GB"


@dataclass(frozen=True)
class InDuckDB:
    """A query over folders of Parquet files, each of which is a view of that name. Uses all cores, as Spark does here."""

    query: str
    files: Mapping[str, Path]

    def compute(self) -> None:
        """All rows, and every value of them; kept nowhere."""
        with self._connected() as database:
            for _ in database.sql(self.query).to_arrow_reader():
                pass

    def rows(self, spark: SparkSession, folder: Path) -> DataFrame:
        """What it finds, as a frame over files that are written to the folder, which must not be there."""
        folder.mkdir(parents=True)
        with self._connected() as database:
            database.sql(self.query).write_parquet(str(folder / "rows.parquet"))
        return spark.read.parquet(str(folder))

    @contextmanager
    def _connected(self) -> Iterator[duckdb.DuckDBPyConnection]:
        with duckdb.connect() as database:
            # Days are those of UTC, as in the lake.
            database.execute(f"SET TimeZone = 'UTC'; SET memory_limit = '{_MEMORY}'")
            for view, folder in self.files.items():
                database.read_parquet(str(folder / "*.parquet")).create_view(view)
            yield database
