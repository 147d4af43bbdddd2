"""A file is read by its very name, whatever its producer called it; what beside it would match it as a pattern is not."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from de_assets.sources.landing import hour_folder, incoming, publish
from de_assets.sources.landing_zone import LandingZone
from de_resources.engine.literal_paths import UnreadableName, literally
from de_resources.spark import SparkEngine

HOUR = datetime(2024, 10, 10, 7, tzinfo=UTC)
NAMES = (
    *("o1.json", "o2.json", "o3.json", "o[12].json", "o{1,3}.json", "o*.json", "o?.json", "o[!1].json"),
    *("a b.json", "100%.json", "a%20b.json", "back\\slash.json", "größe.json", "#1.json", "+.json", "~.json"),
)


@pytest.fixture
def landed(tmp_path: Path) -> Path:
    """An hour of files, each with a line that is its name."""
    with incoming(tmp_path) as prepared:
        for name in NAMES:
            (prepared / name).write_text(f"{name}\n")
        publish(hour_folder(tmp_path, HOUR), {name: prepared / name for name in NAMES})
    return tmp_path


@pytest.mark.pattern("incremental_loader")
def test_each_file_of_an_hour_is_read_once(engine: SparkEngine, landed: Path) -> None:
    lines = LandingZone(root=str(landed)).visit_lines(engine.spark_session, [HOUR]).lines.collect()
    assert sorted(bytes(row["payload"]).decode() for row in lines) == sorted(NAMES)
    assert len({row["source_file"] for row in lines}) == len(NAMES)
    assert {row["landing_hour"].hour for row in lines} == {7}


@pytest.mark.parametrize("name", NAMES)
def test_a_file_alone_is_not_its_neighbours(engine: SparkEngine, landed: Path, name: str) -> None:
    file = str(hour_folder(landed, HOUR) / name)
    assert [row["value"] for row in engine.spark_session.read.text(literally([file])).collect()] == [name]


def test_a_name_that_the_engine_cannot_read_is_said() -> None:
    with pytest.raises(UnreadableName, match=r"`07:00\.json` has a colon in its name"):
        literally(["/landing/o1.json", "/landing/07:00.json"])
