"""What a stream follows, kept inside its checkpoint. Pattern: Checkpointer.

The engine's checkpoint knows the offsets of its source, and not whose they are: of a source that was made again, and is longer
than the old one was, it would go on in the middle. So the source's identity lies beside the offsets, and whoever removes
the checkpoint removes both.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from de_resources.engine.literal_paths import literally

FOLLOWED = "followed"


@dataclass(frozen=True)
class StreamSource:
    """A source and which one it is: `identity` changes when it is made again under its name."""

    name: str
    identity: str

    def __str__(self) -> str:
        """For people."""
        return f"{self.name} (id {self.identity})"


class AnotherSource(Exception):
    """The checkpoint is about another source than the one that the stream would go on with."""

    def __init__(self, known: StreamSource, found: StreamSource) -> None:
        self.known, self.found = known, found
        said = f"{found.name} was made again" if known.name == found.name else f"it was {known.name}"
        super().__init__(f"{said}: the checkpoint is about {known}, and the stream would read {found}")


def require_same(session: SparkSession, checkpoint: str, source: StreamSource) -> bool:
    """Remember the source at a stream's first start, and compare it at every later one. Raises `AnotherSource`.

    Returns whether it was adopted: offsets were there, written by a version of this code that kept no identity, and are taken
    for those of the source as it is now.
    """
    begun = has_begun(session, checkpoint)
    known = _remembered(session, checkpoint) if begun else None
    if known is None:
        _remember(session, checkpoint, source)
        return begun
    if known != source:
        raise AnotherSource(known, source)
    return False


def has_begun(session: SparkSession, checkpoint: str) -> bool:
    """Whether a stream was ever started from the checkpoint, asked of the engine, which can reach it wherever it is."""
    try:
        session.read.text(literally([f"{checkpoint}/metadata"])).schema  # noqa: B018 - over Connect, only this looks for the file
    except AnalysisException:
        return False
    return True


def _remembered(session: SparkSession, checkpoint: str) -> StreamSource | None:
    try:
        lines = session.read.text(literally([f"{checkpoint}/{FOLLOWED}"])).collect()
    except AnalysisException:
        return None
    # One that was killed while it remembered has left a folder without a line.
    return StreamSource(**json.loads(lines[0].value)) if lines else None


def _remember(session: SparkSession, checkpoint: str, source: StreamSource) -> None:
    line = json.dumps({"name": source.name, "identity": source.identity})
    session.createDataFrame([(line,)], "value STRING").write.mode("overwrite").text(f"{checkpoint}/{FOLLOWED}")
