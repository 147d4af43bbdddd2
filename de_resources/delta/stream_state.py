"""What a stream remembers and how far it has read, as its checkpoint has it: for who judges a stream from outside."""

from __future__ import annotations

import json
from dataclasses import dataclass

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, Row, SparkSession

from de_resources.engine.literal_paths import literally


@dataclass(frozen=True)
class StreamState:
    """The last batch that a stream of one Delta table has finished; of that table, all up to `version_read` was read."""

    session: SparkSession
    checkpoint: str
    version_read: int

    @classmethod
    def of(cls, session: SparkSession, checkpoint: str) -> StreamState | None:
        """None where no batch was finished. The files are read by the engine, which can reach them wherever they are."""
        done, begun = (_notes(session, f"{checkpoint}/{folder}") for folder in ("commits", "offsets"))
        if not done:
            return None
        # After the format's version and the batch's settings there is a line for each source.
        offset = json.loads(begun[max(done)].splitlines()[2])
        return cls(session, checkpoint, int(offset["reservoirVersion"]) - (offset["index"] < 0))

    def values(self, variable: str) -> DataFrame:
        """The values of one variable of `transformWithState`: `key` and `value`, each a struct."""
        reader = self.session.read.format("statestore").option("stateVarName", variable)
        return reader.load(self.checkpoint).select("key", "value")


def _notes(session: SparkSession, folder: str) -> dict[int, str]:
    """The engine's notes on each batch, by the number of the batch."""
    try:
        rows: list[Row] = (
            session.read.text(literally([folder]), wholetext=True).select("_metadata.file_name", "value").collect()
        )
    except AnalysisException as error:
        if error.getCondition() != "PATH_NOT_FOUND":
            raise
        return {}
    return {int(row.file_name): row.value for row in rows if row.file_name.isdigit()}
