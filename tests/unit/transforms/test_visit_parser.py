"""Parsing: every line is understood or explained, with the field that is to blame."""

import json
import re

import pytest
from pyspark.sql import SparkSession

from de_assets.bronze.visits import parsed_lines
from de_assets.transforms.error_management.visit_parser import parse_visits
from de_resources.engine.plans import interpret_plans

pytestmark = pytest.mark.pattern("dead_letter", "wrapper")

VISIT = {
    "visit_id": "v1",
    "event_time": "2024-10-10T07:30:00+00:00",
    "user_id": "u1",
    "keep_private": False,
    "page": "page_1",
    "context": {
        "referral": None,
        "ad_id": "ad 1",
        "user": {"ip": "10.0.0.1", "login": "user_1", "connected_since": "2024-10-10T07:00:00+00:00"},
        "technical": {
            "browser": "Firefox",
            "browser_version": "130",
            "network_type": "5G",
            "device_type": "mac",
            "device_version": "v1",
            "is_bot": False,
        },
    },
}


def line(**changes: object) -> bytes:
    return json.dumps({**VISIT, **changes}).encode()


def without(field: str) -> bytes:
    return json.dumps({k: v for k, v in VISIT.items() if k != field}).encode()


CASES = {
    "valid": (line(), None, None),
    "unknown field": (line(release="2024.3"), None, None),
    "no context": (without("context"), None, None),
    "truncated": (line()[:-20], "not a JSON object of the expected form", None),
    "not json": (b"GET / HTTP/1.1", "not a JSON object of the expected form", None),
    "empty": (b"", "not a JSON object of the expected form", None),
    "array": (b"[1, 2]", "not a JSON object of the expected form", None),
    "two visits": (line() + line(visit_id="v2"), "not a JSON object of the expected form", None),
    "two visits and a comma": (line() + b", " + line(), "not a JSON object of the expected form", None),
    "trailing text": (line() + b" and more", "not a JSON object of the expected form", None),
    "trailing brace": (line() + b"}", "not a JSON object of the expected form", None),
    "an end of its own": (line(_end="of the visit") + b"{}", "not a JSON object of the expected form", None),
    "an end of its own, alone": (line(_end="of the visit"), None, None),
    "blanks around it": (b" \t" + line() + b" \t\r\n", None, None),
    "wrong type": (line(keep_private="unknown"), "not a JSON object of the expected form", None),
    "context is text": (line(context="unknown"), "not a JSON object of the expected form", None),
    "bytes": (line(page="pagé").replace(b"pag", b"\xff\xfe"), "the bytes are not UTF-8", None),
    "a NUL": (line(page="page\0"), "page holds a NUL character", "page"),
    "a NUL elsewhere": (line(release="\0"), None, None),
    "a NUL as it is": (
        line(page="page_1").replace(b"page_1", b"page\0"),
        "not a JSON object of the expected form",
        None,
    ),
    "null id": (line(visit_id=None), "visit_id is missing", "visit_id"),
    "blank id": (line(visit_id="  "), "visit_id is missing", "visit_id"),
    "absent user": (without("user_id"), "user_id is missing", "user_id"),
    "absent time": (without("event_time"), "event_time is missing", "event_time"),
    "unreadable time": (line(event_time="yesterday"), "event_time is no timestamp", "event_time"),
    "impossible time": (line(event_time="2024-02-30T00:00:00Z"), "event_time is no timestamp", "event_time"),
    "only a time of day": (line(event_time="10:05"), "event_time is no timestamp", "event_time"),
    "only a year": (line(event_time="2024"), "event_time is no timestamp", "event_time"),
    "a second of the epoch": (line(event_time="1728545400"), "event_time is no timestamp", "event_time"),
    "a date and spaces": (line(event_time=" 2024-10-10 "), None, None),
    "the first year": (
        line(event_time="0001-01-01T00:00:00Z"),
        "event_time is before 1970 or after 2261",
        "event_time",
    ),
    "before the epoch": (
        line(event_time="1970-01-01T00:30:00+01:00"),
        "event_time is before 1970 or after 2261",
        "event_time",
    ),
    "the last year of readers": (line(event_time="2261-12-31T23:59:59Z"), None, None),
    "too far ahead": (line(event_time="2263-01-01T00:00:00Z"), "event_time is before 1970 or after 2261", "event_time"),
    "five digits": (line(event_time="+10000-01-01T00:00:00Z"), "event_time is no timestamp", "event_time"),
    "connected in the year 1": (
        line(context={"user": {"connected_since": "0001-01-01T00:00:00Z"}}),
        "connected_since is before 1970 or after 2261",
        "connected_since",
    ),
    "rejected by nobody": (b'{"rejected": {}}', "visit_id is missing", "visit_id"),
    "rejected with a blank": (b'{"rejected": {"reason": " ", "file": "x"}}', "visit_id is missing", "visit_id"),
    "a visit that says rejected": (line(rejected={"raw": "other", "file": "/etc/passwd", "line": 1}), None, None),
    "rejected earlier": (
        b'{"rejected": {"raw": "garbage", "reason": "no request", "line": 12, "file": "a.log"}}',
        "no request",
        None,
    ),
}


@pytest.fixture(scope="module")
def parsed(spark: SparkSession) -> dict[str, dict[str, object]]:
    frame = spark.createDataFrame(
        [(name, payload) for name, (payload, *_) in CASES.items()], "name STRING, payload BINARY"
    )
    return {row["name"]: row.asDict() for row in parse_visits(frame, "payload").collect()}


@pytest.mark.parametrize("name", CASES)
def test_a_line_is_understood_or_explained(parsed: dict[str, dict[str, object]], name: str) -> None:
    _, reason, field = CASES[name]
    assert (parsed[name]["error"], parsed[name]["error_field"]) == (reason, field)


def test_values_of_a_valid_line(parsed: dict[str, dict[str, object]]) -> None:
    row = parsed["valid"]
    assert row["visit_id"] == "v1"
    assert row["ip"] == "10.0.0.1"
    assert row["device_type"] == "mac"
    assert row["event_time"].isoformat() == "2024-10-10T07:30:00"  # type: ignore[attr-defined]
    assert row["keep_private"] is False


def test_the_original_is_kept_untouched(parsed: dict[str, dict[str, object]]) -> None:
    assert parsed["valid"]["raw"] == line().decode()
    assert bytes(parsed["bytes"]["payload"]) == CASES["bytes"][0]  # type: ignore[call-overload]


def test_an_earlier_rejection_keeps_its_place(parsed: dict[str, dict[str, object]]) -> None:
    row = parsed["rejected earlier"]
    assert (row["raw"], row["error_file"], row["error_line"]) == ("garbage", "a.log", 12)


@pytest.mark.parametrize("name", ["rejected by nobody", "rejected with a blank", "a visit that says rejected"])
def test_who_gives_no_reason_has_rejected_nothing(parsed: dict[str, dict[str, object]], name: str) -> None:
    row = parsed[name]
    assert row["raw"] == CASES[name][0].decode()
    assert (row["error_file"], row["error_line"]) == (None, None)


def test_what_judges_a_record_is_compiled(spark: SparkSession) -> None:
    """Of one method for all steps behind the JSON reader, which Java compiles up to 8,000 bytes: else every step copies."""
    session = spark.newSession()
    interpret_plans(session, interpreted=False)
    lines = parsed_lines(
        session.createDataFrame([], "payload STRING, source_file STRING, landing_hour TIMESTAMP"), None
    )
    generated = session._jvm.PythonSQLUtils.explainString(lines._jdf.queryExecution(), "codegen")  # type: ignore[union-attr]
    sizes = [int(size) for size in re.findall(r"maxMethodCodeSize:(\d+)", generated)]
    assert len(sizes) == 2, "before the reader, and behind it"
    assert max(sizes) < 7_800, "and some room for a rule more"
