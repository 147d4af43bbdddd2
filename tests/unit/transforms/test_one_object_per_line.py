"""Lines in are visits and dead letters, whatever bytes come: a line is one JSON object and nothing else, or it is rejected."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from examples import generated
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from de_assets.sources.landing import hour_folder, incoming, publish
from de_assets.sources.landing_zone import LandingZone
from de_assets.transforms.error_management.visit_parser import ERROR, parse_visits

pytestmark = [pytest.mark.pattern("dead_letter"), pytest.mark.faults]

HOUR = datetime(2024, 10, 10, 7, tzinfo=UTC)
REQUIRED = {"visit_id": "v", "event_time": HOUR.isoformat(), "user_id": "u"}
ENDS = re.compile(rb"\r\n|\n|\r")

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=5) | st.just("}") | st.just('{"_end":1}'),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
PAGES = st.sampled_from(["/", "}", "{}", '"', "\\", "/a } b", "é", "x" * 300])
MEMBERS = st.dictionaries(st.sampled_from(["_end", "_corrupt", "extra", "}"]), JSON_VALUES, max_size=2)
VISITS = st.builds(
    lambda page, members, ascii_: json.dumps({**members, **REQUIRED, "page": page}, ensure_ascii=ascii_).encode(),
    PAGES,
    MEMBERS,
    st.booleans(),
)
BETWEEN = st.sampled_from([b"", b" ", b"\t", b",", b", ", b"]", b"}", b"},", b"],[", b"garbage", b"\0", b"\xff"])
LINES = st.one_of(
    VISITS,
    st.builds(lambda before, visit, after: before + visit + after, BETWEEN, VISITS, BETWEEN),
    st.builds(lambda one, between, other: one + between + other, VISITS, BETWEEN, VISITS),
    st.builds(lambda visit, cut: visit[: cut % (len(visit) + 1)], VISITS, st.integers(0, 500)),
    st.builds(lambda visit, cut: visit[: cut % len(visit)] + b"}", VISITS, st.integers(0, 500)),
    JSON_VALUES.map(lambda value: json.dumps(value).encode()),
    st.binary(max_size=60),
)


def is_one_visit(line: bytes) -> bool:
    """What Python's own parser says, which is strict about what follows an object."""
    try:
        record = json.loads(line.decode().strip(" \t"))
    except ValueError:
        return False
    texts = [record.get(name) for name in (*REQUIRED, "page")] if isinstance(record, dict) else [None]
    return all(isinstance(text, str) and text.strip(" ") for text in texts)


def verdicts(spark: SparkSession, content: bytes) -> list[tuple[bytes, bool]]:
    """The lines of a landed file, each with whether it is a visit."""
    with TemporaryDirectory() as root:
        with incoming(Path(root)) as prepared:
            (prepared / "part.json").write_bytes(content)
            publish(hour_folder(Path(root), HOUR), {"part.json": prepared / "part.json"})
        lines = LandingZone(root=root).visit_lines(spark, [HOUR]).lines
        parsed = parse_visits(lines, "payload").select(F.col("payload").cast("binary"), F.col(ERROR).isNull())
        return [(bytes(payload), is_visit) for payload, is_visit in parsed.collect()]


def lines_of(content: bytes) -> list[bytes]:
    """The lines of a file as every reader counts them: the last one needs no end."""
    found = ENDS.split(content)
    return found[:-1] if found[-1] == b"" else found


def test_lines_in_are_visits_and_dead_letters(spark: SparkSession) -> None:
    lines = generated(LINES, 600)
    content = b"\n".join(lines) + b"\n"
    found = verdicts(spark, content)
    assert sorted(line for line, _ in found) == sorted(lines_of(content)), "each line is in one of the two"
    accepted = [line for line, is_visit in found if is_visit]
    assert [line for line in accepted if not is_one_visit(line)] == [], "a visit is one object and nothing else"


def test_a_line_that_is_one_visit_is_one(spark: SparkSession) -> None:
    visits = generated(VISITS, 120)
    padded = [b" \t"[: number % 3] + visit + b" \t "[: number % 4] for number, visit in enumerate(visits)]
    assert [line for line, is_visit in verdicts(spark, b"\r\n".join(padded)) if not is_visit] == []
