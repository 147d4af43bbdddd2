"""The combined log format, line by line, on a small hand-made log: `tests/data/grammar_access.log`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from de_assets.sources.access_log import Blank, Rejected, Visit, WeakKeyError, read_access_log
from de_assets.sources.access_log.grammar import UnparseableLine, parse_line

LOG = Path(__file__).parents[2] / "data" / "grammar_access.log"
KEY = b"sixteen bytes ok"

REJECTED = {
    9: "request is not a method and a target",
    10: "request is not a method and a target",
    11: "request is not a method and a target",
    13: "time does not exist in the calendar",
    14: "time is not of the form dd/Mon/yyyy:HH:MM:SS +zzzz",
    18: "user agent is missing or its quote is not closed",
    19: "time is not given in brackets",
    20: "does not begin with an address, an identity and a user",
    21: "does not begin with an address, an identity and a user",
    22: "status or size is not a number",
}
BLANK = {7, 8}


@pytest.fixture(scope="module")
def outcomes() -> list[Visit | Rejected | Blank]:
    return list(read_access_log([LOG], KEY))


@pytest.fixture(scope="module")
def pages(outcomes: list[Visit | Rejected | Blank]) -> dict[str, dict]:
    records = [json.loads(outcome.json_line) for outcome in outcomes if isinstance(outcome, Visit)]
    return {record["page"]: record for record in records}


def test_each_line_is_a_visit_rejected_or_blank(outcomes: list[Visit | Rejected | Blank]) -> None:
    assert len(outcomes) == 25
    assert {line.line: line.reason for line in outcomes if isinstance(line, Rejected)} == REJECTED
    assert {line.line for line in outcomes if isinstance(line, Blank)} == BLANK


def test_all_fields_of_a_visit(pages: dict[str, dict]) -> None:
    first = pages["/first"]
    assert (len(first.pop("visit_id")), len(first.pop("user_id"))) == (32, 32)
    assert first == {
        "event_time": "2000-10-10T20:55:36+00:00",
        "keep_private": False,
        "page": "/first",
        "context": {
            "referral": "http://www.example.com/start.html",
            "ad_id": None,
            "user": {"ip": "203.0.113.1", "login": None, "connected_since": None},
            "technical": {
                "browser": "Chrome",
                "browser_version": "32.0",
                "network_type": None,
                "device_type": "Mac",
                "device_version": "Mac OS X 10.9",
                "is_bot": False,
            },
        },
    }


@pytest.mark.parametrize(
    ("page", "event_time", "address"),
    [
        ("/ipv6", "2031-12-31T18:29:59+00:00", "2001:db8::17"),
        ("/", "2031-12-31T23:59:59+00:00", "::1"),
        ("/virtual-host", "2024-01-01T01:00:00+00:00", "203.0.113.5"),
        ("/proxies", "2024-01-01T01:00:01+00:00", "203.0.113.6"),
        ("/absolute", "2024-01-01T01:00:02+00:00", "203.0.113.6"),
        ('/say"hello"', "2024-01-01T00:00:00+00:00", "203.0.113.2"),
        ("/caf\\xe9", "2024-01-01T00:00:01+00:00", "203.0.113.3"),
        ("/windows", "2024-01-01T00:00:01+00:00", "203.0.113.3"),
        ("/old-protocol", "2024-01-01T01:00:07+00:00", "-"),
    ],
)
def test_moments_addresses_and_pages(pages: dict[str, dict], page: str, event_time: str, address: str) -> None:
    assert pages[page]["event_time"] == event_time
    assert pages[page]["context"]["user"]["ip"] == address


def test_referrals_keep_their_letters_and_dashes_are_null(pages: dict[str, dict]) -> None:
    assert pages["/utf-8"]["context"]["referral"] == "http://example.com/grüße"
    assert pages["/ipv6"]["context"]["referral"] is None
    assert pages["/old-protocol"]["context"]["referral"] is None


def test_bots_are_spiders_programs_and_clients_without_a_name(pages: dict[str, dict]) -> None:
    bots = {page for page, record in pages.items() if record["context"]["technical"]["is_bot"]}
    assert bots == {"/ipv6", "/", "/utf-8", "/old-protocol"}
    assert pages["/common"]["context"]["technical"]["is_bot"] is None, "the common format does not say who asked"


def test_visit_id_is_that_of_the_raw_line_whatever_ends_it(tmp_path: Path) -> None:
    line = b'::1 - - [01/Jan/2024:00:00:00 +0000] "GET / HTTP/1.1" 200 5 "-" "Lynx"'
    (tmp_path / "a.log").write_bytes(line + b"\n" + line + b"\r\n" + line + b" \n" + line)
    ids = [json.loads(visit.json_line)["visit_id"] for visit in read_access_log([tmp_path / "a.log"], KEY)]  # type: ignore[union-attr]
    assert ids[0] == ids[1] == ids[3] != ids[2]


def test_pseudonyms_depend_on_the_key_and_on_address_and_agent() -> None:
    def users(key: bytes) -> list[str]:
        return [
            json.loads(line.json_line)["user_id"] for line in read_access_log([LOG], key) if isinstance(line, Visit)
        ]

    assert users(KEY) == users(KEY)
    assert not set(users(KEY)) & set(users(b"another key of 16"))
    assert len(set(users(KEY))) == 13 - 1 - 1, "two lines are equal, and two visitors share proxy and browser"


def test_a_short_key_is_refused_before_anything_is_read() -> None:
    with pytest.raises(WeakKeyError, match="at least 16"):
        read_access_log(["nowhere"], b"short")


@pytest.mark.parametrize(
    "text", ["a" * 60_000, "1.2.3.4 - " + "[" * 60_000, '1 - - [x] "' + "\\" * 60_000, " " * 60_000 + '"']
)
def test_hostile_lines_are_rejected_in_no_time(text: str) -> None:
    with pytest.raises(UnparseableLine):
        parse_line(text)


def test_the_common_format_is_a_visit_of_nobody_knows_what() -> None:
    entry = parse_line('203.0.113.9 - frank [10/Oct/2000:13:55:36 -0700] "GET /a?b=c HTTP/1.0" 200 2326')
    assert (entry.address, entry.page, entry.referral, entry.agent) == ("203.0.113.9", "/a", None, None)
    with pytest.raises(UnparseableLine, match="referrer is missing"):
        parse_line('203.0.113.9 - frank [10/Oct/2000:13:55:36 -0700] "GET /a HTTP/1.0" 200 2326 "http://x')


@pytest.mark.parametrize("address", ["[2001:db8::1]", "2001:db8::1"])
def test_an_address_in_brackets_is_one(address: str) -> None:
    entry = parse_line(f'{address} - - [10/Oct/2000:13:55:36 -0700] "GET /a HTTP/1.0" 200 2326 "-" "Lynx"')
    assert entry.address == "2001:db8::1"
