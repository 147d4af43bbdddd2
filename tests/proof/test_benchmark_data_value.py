"""The cases about data value: the rows that they read, what is compared, and how micro-batches are told. Nothing is timed."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import count, pairwise
from pathlib import Path
from typing import cast

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks import visits
from benchmarks.by_hand import Pair, fingerprint
from benchmarks.case import ResultsDiffer
from benchmarks.cases import aggregate, deduplicate, enrich, salting, sessionise, stateful_sessions
from benchmarks.cases.stateful_sessions import Load, MicroBatch, latency_figures
from benchmarks.in_duckdb import InDuckDB
from de_assets.gold.visits_cube_daily import visits_cube_daily
from de_assets.silver.visits_enriched import enriched
from de_assets.transforms.data_value.salting import skew_of
from de_assets.transforms.data_value.sessions import sessions

ROWS = 2_000


def test_every_tenth_landed_visit_is_a_copy_in_the_hour_of_the_first_one(spark: SparkSession) -> None:
    landed = visits.landed(spark, ROWS).collect()
    found = Counter((row["landing_hour"], row["visit_id"]) for row in landed)
    assert Counter(found.values()) == {1: ROWS * 8 // 10, 2: ROWS // 10}
    assert len({row["raw"] for row in landed}) == ROWS, "a copy can be told from its first one"
    kept = {row["raw"] for row in deduplicate.by_hand(visits.landed(spark, ROWS)).collect()}
    firsts: dict[str, tuple[datetime, str]] = {}
    for row in landed:
        this = (row["event_time"], row["raw"])
        firsts[row["visit_id"]] = min(firsts.get(row["visit_id"], this), this)
    assert kept == {raw for _, raw in firsts.values()}


def test_visits_have_users_and_devices_and_some_have_none(spark: SparkSession) -> None:
    found, users, devices = visits.visits(spark, ROWS), visits.users(spark, ROWS), visits.devices(spark)
    versions: dict[str, list[tuple[datetime, datetime | None, str]]] = {}
    for row in users.collect():
        versions.setdefault(row["user_id"], []).append((row["valid_from"], row["valid_to"], row["country"]))
    assert {len(each) for each in versions.values()} == {2}
    rows = enrich.by_hand(found, users, devices).collect()
    assert len(rows) == ROWS
    for row in rows:
        valid = [
            country
            for start, end, country in versions.get(row["user_id"], [])
            if start <= row["event_time"] and (end is None or row["event_time"] < end)
        ]
        assert ([row["country"]] if row["is_registered"] else []) == valid
    assert {row["is_registered"] for row in rows} == {row["device_name"] is None for row in rows} == {True, False}


def test_all_find_what_the_platform_finds(spark: SparkSession, tmp_path: Path) -> None:
    def stored(name: str, frame: DataFrame) -> DataFrame:
        frame.write.parquet(str(tmp_path / name))
        return spark.read.parquet(str(tmp_path / name))

    def duck(query: str, **names: str) -> InDuckDB:
        return InDuckDB(query, {view: tmp_path / name for view, name in names.items()})

    found, users = stored("visits", visits.visits(spark, ROWS)), stored("users", visits.users(spark, ROWS))
    devices, landed = stored("devices", visits.devices(spark)), stored("landed", visits.landed(spark, ROWS))
    known = stored("known", visits.with_country(found))
    in_users = duck(enrich.IN_DUCKDB, v="visits", u="users", d="devices")
    cube = cast("DataFrame", visits_cube_daily(known))
    for pair in (
        Pair(
            "deduplicate",
            "",
            deduplicate.ours(landed),
            deduplicate.by_hand(landed),
            duck(deduplicate.IN_DUCKDB, landed="landed"),
        ),
        Pair("sessionise", "", sessions(found), sessionise.by_hand(found), duck(sessionise.IN_DUCKDB, visits="visits")),
        Pair("enrich", "", enriched(found, users, devices), enrich.by_hand(found, users, devices), in_users),
        Pair("aggregate", "", cube, aggregate.by_hand(known), duck(aggregate.IN_DUCKDB, visits="known")),
    ):
        pair.require_equal(tmp_path / "duckdb" / pair.case)
        pair.in_duckdb.compute()


def test_contenders_that_find_something_else_are_not_measured(spark: SparkSession, tmp_path: Path) -> None:
    one, other = spark.range(3), spark.sql("SELECT * FROM VALUES (0L), (1L), (3L) AS t(id)")
    duck, folders = InDuckDB("FROM range(3) AS t(id)", {}), (tmp_path / str(n) for n in count())
    Pair("any", "", one, one.orderBy(F.col("id").desc()), duck).require_equal(next(folders))
    for wrong in (other, one.limit(2), one.withColumnRenamed("id", "number")):
        with pytest.raises(ResultsDiffer):
            Pair("any", "", one, wrong, duck).require_equal(next(folders))
    with pytest.raises(ResultsDiffer):
        Pair("any", "", one, one, InDuckDB("FROM range(4) AS t(id)", {})).require_equal(next(folders))
    assert fingerprint(one.limit(0)) == (0, None)


def test_keys_are_as_frequent_as_zipf_says(spark: SparkSession) -> None:
    rows = salting.rows_of_zipf(spark, 50_000)
    shares = {row["key"]: row["count"] / 50_000 for row in rows.groupBy("key").count().collect()}
    for key in (1, 2, 3, 10):
        assert shares[key] == pytest.approx(key**-0.5 - (key + 1) ** -0.5, abs=0.01)
    assert max(shares) <= salting.GREATEST_KEY
    again, other = (skew_of(salting.rows_of_zipf(spark, 50_000, seed), ["key"]) for seed in (1, 2))
    assert again.largest == round(shares[1] * 50_000) != other.largest
    assert again.salts(salting.TASKS) == round(shares[1] * salting.TASKS) > 1


def test_salted_or_not_the_rows_are_the_same(spark: SparkSession) -> None:
    rows = salting.rows_of_zipf(spark, 5_000)
    assert fingerprint(salting.by_skew(rows, None)) == fingerprint(salting.plain(rows))


def test_micro_batches_are_told_by_median_and_rank() -> None:
    began = datetime(2026, 1, 5, tzinfo=UTC)
    seconds = [3.0, *[1.0] * 98, 2.0]
    batches = [MicroBatch(500, began + timedelta(seconds=2 * n), each) for n, each in enumerate(seconds)]
    p50, p99 = latency_figures("one", Load(1_000, 50_000, 0, 200), batches)
    assert (p50.value, p99.value) == (1.0, 2.0)
    assert p50.note == "100 micro-batches; 250 records in a second of the clock, 485 in a second at work"
    none = latency_figures("one", Load(1_000, 50_000, 0, 200), [])
    assert [figure.per_round for figure in none] == [(), ()]
    told = {"numInputRows": 7, "timestamp": "2026-01-05T00:00:01.500Z", "durationMs": {"triggerExecution": 250}}
    assert MicroBatch.of(told) == MicroBatch(7, began + timedelta(seconds=1.5), 0.25)


def test_visits_of_the_stream_come_in_order_and_never_the_gap_apart(spark: SparkSession) -> None:
    rows = stateful_sessions.visits(spark.range(400), 100).orderBy("visit_id").collect()
    times = [row["event_time"] for row in rows]
    assert {after - before for before, after in pairwise(times)} == {
        timedelta(minutes=30) / 100 + timedelta(microseconds=1)
    }
    assert timedelta(minutes=30) not in {times[n] - times[0] for n in range(400)}
    assert len({row["user_id"] for row in rows}) > 90
