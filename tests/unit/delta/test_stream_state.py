"""What a stream remembers: a checkpoint that is not there is no batch, and one that cannot be read is an error."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from de_resources.delta.stream_state import StreamState

pytestmark = pytest.mark.pattern("stateful_sessionizer")


def test_a_checkpoint_that_is_not_there_has_no_batch(spark: SparkSession, tmp_path: Path) -> None:
    assert StreamState.of(spark, str(tmp_path / "nothing")) is None


def test_the_last_batch_that_is_committed_counts_and_not_one_that_was_begun(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The format of a checkpoint is Spark's: its version, the settings of the batch, and an offset of each source."""
    for batch, version in enumerate((3, 5, 9)):
        offset = f'{{"sourceVersion":1,"reservoirVersion":{version},"index":-1}}'
        note(tmp_path / "offsets" / str(batch), "v1\n{}\n" + offset)
    for batch in range(2):
        note(tmp_path / "commits" / str(batch), "v1\n{}")
    state = StreamState.of(spark, str(tmp_path))
    assert state is not None
    assert state.version_read == 4, "all up to it: of the version at index -1 nothing was read"


def test_a_checkpoint_that_cannot_be_read_is_no_empty_one(spark: SparkSession) -> None:
    with pytest.raises(Exception, match="UnsupportedFileSystem"):
        StreamState.of(spark, "nowhere:/checkpoint")


def note(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
