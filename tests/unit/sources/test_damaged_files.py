"""Landed files that break off or are no longer what was written: what is read of them, and what is told."""

from __future__ import annotations

import bz2
import gzip
import json
import zlib
from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from random import Random

import pytest

from de_assets.sources.damaged_files import BREAKS_OFF, CORRUPT, NO_CODEC, damaged
from de_assets.sources.landing import hour_folder, incoming, publish
from de_assets.sources.landing_zone import LandingZone
from de_resources.spark import SparkEngine

pytestmark = [pytest.mark.faults, pytest.mark.pattern("dead_letter")]

HOUR = datetime(2024, 10, 10, 7, tzinfo=UTC)
CHANCE = Random(7)  # noqa: S311 - the same in every run
LINES = [json.dumps({"visit_id": f"v{n}", "page": f"{CHANCE.getrandbits(600):x}"}).encode() for n in range(2000)]
TEXT = b"".join(line + b"\n" for line in LINES)
COMPRESSED: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    # Of more than one block: what is read of a file ends with the last whole one.
    "bz2": lambda text: bz2.compress(text, 1),
    "deflate": zlib.compress,
}


def land(root: Path, files: dict[str, bytes]) -> LandingZone:
    with incoming(root) as prepared:
        for name, content in files.items():
            (prepared / name).write_bytes(content)
        publish(hour_folder(root, HOUR), {name: prepared / name for name in files})
    return LandingZone(root=str(root))


def read(zone: LandingZone, engine: SparkEngine) -> tuple[dict[str, list[bytes]], dict[str, tuple[int, str]]]:
    """Lines by file, and for each file of which some are missing the line and the reason of its rejected line."""
    lines: dict[str, list[bytes]] = defaultdict(list)
    rejected = {}
    for row in zone.visit_lines(engine.spark_session, [HOUR]).lines.collect():
        assert row["landing_hour"].hour == HOUR.hour
        said = json.loads(row["payload"]).get("rejected")
        if said is None:
            lines[Path(row["source_file"]).name].append(row["payload"].encode())
        else:
            assert said["file"] == row["source_file"]
            rejected[Path(said["file"]).name] = (said["line"], said["reason"])
    return lines, rejected


def test_of_a_file_that_breaks_off_the_whole_lines_before_are_read_and_the_rest_is_told(
    engine: SparkEngine, tmp_path: Path
) -> None:
    whole = {f"whole.{ending}": compress(TEXT) for ending, compress in COMPRESSED.items()}
    halves = {
        f"cut-{number}.{name}": content[: CHANCE.randrange(1, len(content))]
        for name, content in whole.items()
        for number in range(8)
    } | {f"no-end.{name}": content[:-1] for name, content in whole.items()}
    lines, rejected = read(land(tmp_path, {**whole, **halves}), engine)
    assert {name: lines[name] for name in whole} == dict.fromkeys(whole, LINES), "the neighbours are all there"
    for name in halves:
        assert lines[name] == LINES[: len(lines[name])], name
        assert rejected.pop(name) == (len(lines[name]) + 1, BREAKS_OFF)
    assert not rejected
    assert sum(len(lines[name]) for name in halves if name.endswith(".gz")) > len(LINES), "something was read of them"


def test_of_a_file_that_holds_something_else_nothing_is_read(engine: SparkEngine, tmp_path: Path) -> None:
    whole = gzip.compress(TEXT)
    changed = whole[:20_000] + bytes(byte ^ 0x55 for byte in whole[20_000:20_010]) + whole[20_010:]
    corrupt = {
        "checksum.gz": whole[:-8] + bytes([whole[-8] ^ 1]) + whole[-7:],
        "changed.gz": changed,
        "plain.gz": TEXT,
        "zeros.gz": whole + b"\0" * 64,
        "plain.BZ2": TEXT,
    }
    foreign = {"a.zst": b"\x28\xb5\x2f\xfdabc", "a.lz4": TEXT, "a.snappy": TEXT}
    good = {"a.gz": whole + whole, "b.GZ": whole, "empty.gz": b"", "plain.json": TEXT}
    lines, rejected = read(land(tmp_path, {**corrupt, **foreign, **good}), engine)
    assert {name: len(found) for name, found in lines.items()} == {"a.gz": 4000, "b.GZ": 2000, "plain.json": 2000}
    assert rejected == {**dict.fromkeys(corrupt, (1, CORRUPT)), **dict.fromkeys(foreign, (1, NO_CODEC))}


def test_plain_files_are_not_looked_into(tmp_path: Path) -> None:
    assert damaged([tmp_path / "gone.json"]) == []


def test_what_the_disk_says_is_no_property_of_the_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        damaged([tmp_path / "gone.json.gz"])
