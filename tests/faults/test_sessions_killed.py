"""A stream with a state, killed with its engine while a batch is being computed: the next run does the batch again."""

import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from signal import SIGKILL

import pytest
from pyspark.sql import SparkSession
from sessions_client import ARRIVAL, FATAL, GAP

from de_assets.transforms.data_value.closing_rules import Inactivity
from de_assets.transforms.data_value.stateful_sessionizer import STATE_SETTINGS, stream_sessions
from de_resources.delta.table import CommitInfo, Table
from de_resources.delta.write.stream import CHECKPOINT, run_available_now
from de_resources.engine.utc_rows import utc_rows

pytestmark = pytest.mark.pattern("stateful_sessionizer")

START = datetime(2026, 3, 28, 22, tzinfo=UTC)
VISITS = "user_id STRING, event_time TIMESTAMP, visit_id STRING, page STRING, referral STRING, append_time TIMESTAMP"
CLIENT = Path(__file__).with_name("sessions_client.py")


def come(spark: SparkSession, folder: Path, visits: Sequence[tuple[str, int, str]]) -> None:
    moments = [(user, START + timedelta(minutes=minute), page) for user, minute, page in visits]
    rows = [(user, at, f"{user} {at}", page, None, at) for user, at, page in moments]
    spark.createDataFrame(rows, VISITS).write.format("delta").mode("append").save(str(folder / "visits"))


def drain(spark: SparkSession, folder: Path) -> list[tuple[str, int, int]]:
    stamp = CommitInfo("gold.found", "found", "all", "2", "2", "2")
    visits = spark.readStream.format("delta").load(str(folder / "visits"))
    table = Table("gold.found", str(folder / "found"))
    found = stream_sessions(visits, (Inactivity(GAP),), ARRIVAL)
    run_available_now(spark, table, found, stamp, settings=STATE_SETTINGS)
    rows = utc_rows(table.read(spark))
    return sorted((r["user_id"], (r["started_at"] - START) // timedelta(minutes=1), r["visits"]) for r in rows)


def test_a_stream_killed_in_the_middle_of_a_batch_finds_the_same_sessions(spark: SparkSession, tmp_path: Path) -> None:
    users = [f"u{n}" for n in range(20)]
    come(spark, tmp_path, [(user, minute, "a") for user in users for minute in (0, 20)])
    assert drain(spark, tmp_path) == []
    # All sessions that are open go on, end, and are followed by others; half-way through them is the page that kills.
    later = [(user, minute, "a") for user in users for minute in (40, 100, 400)]
    come(spark, tmp_path, [*later, ("u9", 401, FATAL), ("u9", 500, "a")])
    died = subprocess.run([sys.executable, str(CLIENT), str(tmp_path)], capture_output=True, timeout=240, check=False)
    assert died.returncode == -SIGKILL, died.stderr[-2000:]
    checkpoint = tmp_path / "found" / CHECKPOINT
    begun, done = ({int(p.name) for p in (checkpoint / name).glob("[0-9]*")} for name in ("offsets", "commits"))
    assert len(begun - done) == 1
    once = [("u9", 400, 2)] + [(user, 400, 1) for user in users if user != "u9"]
    expected = sorted([(user, 0, 3) for user in users] + [(user, 100, 1) for user in users] + once)
    assert drain(spark, tmp_path) == expected
    assert drain(spark, tmp_path) == expected
