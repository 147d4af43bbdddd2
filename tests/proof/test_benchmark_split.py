"""The case `split`: when its ratio is given, and how readings are counted. Nothing here is timed."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from benchmarks.case import ResultsDiffer
from benchmarks.cases.split import BAR, OURS, PEER, READINGS, _figure, bytes_read, require_readings, size_of
from benchmarks.figure import Verdict
from benchmarks.measure import Sample


def ratios(*rounds: float) -> dict[str, tuple[Sample, ...]]:
    return {OURS: tuple(map(Sample, rounds)), PEER: tuple(Sample(1.0) for _ in rounds)}


def test_the_bar_and_the_readings_are_told() -> None:
    figure = _figure("a day", ratios(0.5, 0.55, 0.6, 0.58, 0.59), {OURS: 1.04, PEER: 2.02})
    assert (figure.verdict, figure.bar) == (Verdict.HOLDS, BAR)
    assert figure.note == "the engine read 1.0 and 2.0 times the size of the source"
    assert _figure("a day", ratios(0.61, 0.7, 0.8, 0.9, 1.0), READINGS).verdict is Verdict.MISSED
    assert _figure("a day", ratios(0.5, 0.7, 0.8, 0.5, 1.0), READINGS).verdict is Verdict.UNDECIDED


def test_who_reads_once_too_often_ends_the_measuring() -> None:
    require_readings({OURS: 1.6, PEER: 2.4})
    for wrong in ({OURS: 2.1, PEER: 2.1}, {OURS: 1.0, PEER: 1.0}, {OURS: 1.0}):
        with pytest.raises(ResultsDiffer, match="readings"):
            require_readings(wrong)


def test_a_second_reading_by_the_engine_is_seen(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "lines").mkdir()
    file = tmp_path / "lines" / "part.json"
    file.write_text("x" * 99 + "\n" + ("y" * 99 + "\n") * 100_000)
    (tmp_path / "lines" / "_READY").write_text("marker")
    assert size_of(tmp_path / "lines") == 10_000_100

    def read(times: int) -> float:
        before = bytes_read()
        for _ in range(times):
            spark.read.text(str(file)).selectExpr("max(length(value))").collect()
        return (bytes_read() - before) / file.stat().st_size

    read(1)
    assert (round(read(1)), round(read(2))) == (1, 2)
