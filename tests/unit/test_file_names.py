"""A file is read by its very name, whatever its producer called it; what beside it would match it as a pattern is not."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from de_assets.sources.landing import MARKER, hour_folder, incoming, publish
from de_assets.sources.landing_zone import LandingZone
from de_resources.engine.literal_paths import UnreadableName, literally, printable
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
    assert sorted(row["payload"] for row in lines) == sorted(NAMES)
    assert len({row["source_file"] for row in lines}) == len(NAMES)
    assert {row["landing_hour"].hour for row in lines} == {7}


@pytest.mark.parametrize("name", NAMES)
def test_a_file_alone_is_not_its_neighbours(engine: SparkEngine, landed: Path, name: str) -> None:
    file = str(hour_folder(landed, HOUR) / name)
    assert [row["value"] for row in engine.spark_session.read.text(literally([file])).collect()] == [name]


UNREADABLE = {
    "07:00.json": "has a colon in its name",
    "c:.json.gz": "has a colon in its name",
    "\udcff.json": "has a name that is not UTF-8",  # as Python reads the byte 0xFF
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_a_name_that_the_engine_cannot_read_is_said(name: str) -> None:
    with pytest.raises(UnreadableName, match=UNREADABLE[name]) as refused:
        literally(["/landing/o1.json", f"/landing/{name}"])
    assert str(refused.value).encode()


@pytest.mark.faults
@pytest.mark.pattern("dead_letter")
def test_files_with_such_names_are_set_aside_until_they_are_renamed(engine: SparkEngine, tmp_path: Path) -> None:
    folder = hour_folder(tmp_path, HOUR)
    folder.mkdir(parents=True)
    for name in ("o1.json", *UNREADABLE):
        (folder / name).write_text(f"{printable(name)}\n")
    (folder / MARKER).touch()
    zone = LandingZone(root=str(tmp_path))
    landed = zone.visit_lines(engine.spark_session, [HOUR])
    told = landed.damaged[HOUR]
    said = {
        Path(place).name: next(why for why in UNREADABLE.values() if why in sentence)
        for place, sentence in told.items()
    }
    assert said == {printable(name): why for name, why in UNREADABLE.items()}
    rows = {row["source_file"]: row["payload"] for row in landed.lines.collect()}
    assert rows.pop("visits/date=2024-10-10/hour=07/o1.json") == "o1.json"
    assert {place: json.loads(line)["rejected"]["reason"] for place, line in rows.items()} == told

    look = zone.looks()[HOUR]
    for number, name in enumerate(UNREADABLE):
        (folder / name).rename(folder / f"renamed-{number}.json")
    assert zone.looks()[HOUR] != look, "the hour is seen to have changed"
    landed = zone.visit_lines(engine.spark_session, [HOUR])
    assert not landed.damaged
    read = sorted(row["payload"] for row in landed.lines.collect())
    assert read == sorted(["o1.json", *map(printable, UNREADABLE)])
