"""A log of scanners: nobody reads this blog, and programs try what they know, thousands of times in some hours.

Made up, line by line, from a seed. Addresses are those of documentation (RFC 5737), paths those that scanners are known for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from random import Random

PATHS = (
    "/",
    "/.env",
    "/.git/config",
    "/wp-login.php",
    "/xmlrpc.php",
    "/phpmyadmin/index.php?lang=en",
    "/cgi-bin/luci/;stok=/locale?form=country&operation=write",
    "/vendor/phpunit/phpunit/src/Util/PHP/eval-stdin.php",
    "/shell?cd+/tmp;rm+-rf+*",
    "/robots.txt",
    "/actuator/health",
    "/%2e%2e/%2e%2e/etc/passwd",
)
AGENTS = (
    "-",
    "Mozilla/5.0 zgrab/0.x",
    "masscan/1.3",
    "python-requests/2.31.0",
    "Mozilla/5.0 (compatible; CensysInspect/1.1)",
    "Mozilla/5.0 (X11; Linux x86_64) Chrome/120.0 Safari/537.36",
)
NO_REQUESTS = (r"\x16\x03\x01\x02", "-", "SSH-2.0-Go", r"MGLNDD_192.0.2.7_443\n", r"\x03\x00\x00/*\xE0")
"""What arrives at the port and is no request of HTTP."""
CODES = (200, 301, 400, 403, 404, 404, 404, 405)


def scanner_log(seed: int, day: datetime, hours: Sequence[int], lines: int, *, no_requests: float = 0.02) -> list[str]:
    """`lines` lines in these hours of the day, in order of time, very unequal numbers in each; at least one in each."""
    random = Random(seed)  # noqa: S311 - a log, not a secret
    weights = [random.paretovariate(0.8) for _ in hours]
    chosen = [*hours, *random.choices(hours, weights, k=lines - len(hours))]
    moments = sorted(day + timedelta(hours=hour, seconds=random.randrange(3600)) for hour in chosen)
    return list(_lines(random, moments, no_requests))


def _lines(random: Random, moments: Sequence[datetime], no_requests: float) -> Iterator[str]:
    for at in moments:
        if random.random() < no_requests:
            request, code = random.choice(NO_REQUESTS), 400
        else:
            method = random.choices(("GET", "POST", "HEAD", "OPTIONS"), (80, 12, 6, 2))[0]
            request, code = f"{method} {random.choice(PATHS)} HTTP/1.{random.randrange(2)}", random.choice(CODES)
        address = f"{random.choice(('192.0.2', '198.51.100', '203.0.113'))}.{random.randrange(1, 255)}"
        agent = random.choice(AGENTS)
        size = random.randrange(9_000)
        yield f'{address} - - [{at:%d/%b/%Y:%H:%M:%S} +0000] "{request}" {code} {size} "-" "{agent}"\n'
