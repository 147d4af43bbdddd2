"""What was decided about dead letters, read and counted over Spark Connect as the graph's runs do it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from de_assets.bronze.visits import dead_letters, parsed_lines, understood
from de_assets.sources.decisions import Decision, land
from de_assets.sources.landing import MARKER, hour_folder
from de_assets.sources.landing_zone import LandingZone
from de_assets.transforms.error_management.dead_letter import DeadLetterKind, identify, with_status_counts
from de_resources.local import LocalServices
from de_resources.spark import SparkEngine, close_connections

pytestmark = [pytest.mark.services, pytest.mark.pattern("dead_letter")]

HOUR = datetime(2026, 1, 31, 7, tzinfo=UTC)
SOUND = {"visit_id": "v", "event_time": "2026-01-31T07:10:00+00:00", "user_id": "u", "page": "p"}
LINES = [json.dumps(SOUND).encode(), b"<html>", b"\xff\xfe", b"{"]


@pytest.fixture
def session(at_home: LocalServices) -> Iterator[SparkSession]:
    yield SparkEngine().spark_session
    close_connections()


def test_decisions_take_part_over_the_shared_engine(session: SparkSession, tmp_path: Path) -> None:
    folder = hour_folder(tmp_path, HOUR)
    folder.mkdir(parents=True)
    (folder / "part-00000.json").write_bytes(b"\n".join(LINES))
    (folder / MARKER).touch()
    mended = json.dumps({**SOUND, "visit_id": "mended"})
    html, bytes_ = (identify(HOUR, line) for line in LINES[1:3])
    land(
        tmp_path,
        HOUR,
        [
            Decision(html, DeadLetterKind.REPAIRED, 1, raw=mended),
            Decision(bytes_, DeadLetterKind.DISCARDED, 0, why="old"),
        ],
    )

    zone = LandingZone(root=str(tmp_path), visits_readiness="marker")
    parsed = parsed_lines(zone.visit_lines(session, [HOUR]).lines, zone.decisions(session, [HOUR]))
    valid = [(row.visit_id, row.was_dead_lettered) for row in understood(parsed).collect()]
    assert sorted(valid) == [("mended", True), ("v", False)]
    observed = with_status_counts(dead_letters(parsed), window="landing_hour", status="status")
    observed.frame.write.format("delta").save(str(tmp_path / "letters"))
    rows = session.read.format("delta").load(str(tmp_path / "letters")).collect()
    found = {(row.letter_id, row.status, row.why) for row in rows}
    assert found == {
        (html, "replayed", None),
        (bytes_, "discarded", "old"),
        (identify(HOUR, LINES[3]), "open", None),
    }
    numbers = {"dead_letters/open": 1, "dead_letters/replayed": 1, "dead_letters/discarded": 1}
    assert observed.metadata() == {HOUR: numbers}
