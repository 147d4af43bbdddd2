"""The case `rule_suite`: what is known of its rows, and when nothing is measured. Nothing here is timed."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from benchmarks.case import ResultsDiffer
from benchmarks.cases.rule_suite import JOBS, OURS, Asked, _figure
from benchmarks.figure import Verdict
from benchmarks.measure import Sample
from benchmarks.rule_peers import CONTRACT, KEY, comparable, ours, spoiled, truth

ROWS = 10_000


def asked(answers: dict[str, dict[str, int]], jobs: int = JOBS) -> Asked:
    """Tools that have answered."""
    nothing: Any = None
    tools = Asked(nothing, nothing, {})
    tools.answers, tools.jobs = answers, {OURS: jobs, "cuallee": 5}
    return tools


def test_ten_rules_and_one_key() -> None:
    assert len(CONTRACT.rules) == 10
    assert CONTRACT.key == ("visit_id",)


def test_what_is_broken_is_known_from_the_numbers_of_the_rows(spark: SparkSession) -> None:
    views = spark.range(ROWS).selectExpr(
        "lower(lpad(hex(id), 16, '0')) AS visit_id", "id AS user_id", "timestamp_seconds(id) AS event_time",
        "'/a' AS page", "'de' AS country", "id AS duration_ms", "200 AS status",
    )  # fmt: skip
    frame = spoiled(views)
    by_hand = {
        "event_time_present": frame.where("event_time IS NULL").count(),
        "country_isin": frame.where("country = '??'").count(),
        "duration_ms_in_range": frame.where("duration_ms < 0").count(),
        "status_isin": frame.where("status = 500").count(),
        KEY: ROWS - frame.select("visit_id").distinct().count(),
    }
    assert by_hand == truth(ROWS) == ours(frame)


def test_who_miscounts_or_sees_another_rule_broken_ends_the_measuring() -> None:
    right = truth(ROWS)
    asked({OURS: right, "cuallee": dict(reversed(right.items()))}).verify(JOBS, right)
    without = {name: n for name, n in right.items() if name != KEY}
    for wrong in ({**right, KEY: 2}, {**right, "page_present": 1}, without):
        with pytest.raises(ResultsDiffer, match="cuallee"):
            asked({OURS: right, "cuallee": wrong}).verify(JOBS, right)


def test_pandera_counts_no_rows_but_keys() -> None:
    told = comparable("pandera", truth(100_000))
    assert told == {**dict.fromkeys(truth(100_000), 1), KEY: 10}
    asked({"pandera": told}).verify(JOBS, truth(100_000))
    with pytest.raises(ResultsDiffer):
        asked({"pandera": truth(100_000)}).verify(JOBS, truth(100_000))


def test_more_jobs_than_promised_end_the_measuring() -> None:
    with pytest.raises(ResultsDiffer, match="jobs"):
        asked({OURS: truth(ROWS)}, jobs=JOBS + 1).verify(JOBS, truth(ROWS))
    asked({OURS: truth(ROWS)}, jobs=JOBS + 1).verify(JOBS + 1, truth(ROWS))
    assert asked({}).note(OURS, "cuallee") == "Spark jobs: 2 and 5"


def test_the_bar_is_six_tenths_of_the_peer() -> None:
    def verdict(*ours: float) -> Verdict:
        samples = {OURS: tuple(map(Sample, ours)), "cuallee": tuple(Sample(10.0) for _ in ours)}
        return _figure("rows", samples, "cuallee", "").verdict

    assert verdict(5.0, 5.5, 6.0, 5.9, 5.8) is Verdict.HOLDS
    assert verdict(6.1, 6.5, 7.0, 6.2, 6.3) is Verdict.MISSED
    assert verdict(5.0, 5.5, 6.1, 5.9, 5.8) is Verdict.UNDECIDED
