r"""The combined log format and the common one: one line to its fields, or the reason why not.

    203.0.113.9 - frank [10/Oct/2000:13:55:36 -0700] "GET /a HTTP/1.0" 200 2326 "http://x.example/" "Mozilla/5.0"

The common format ends after the size: such a visit has neither referrer nor user agent.
A virtual host with port may stand in front (Debian's `vhost_combined`), the address may be a chain of proxies (its
first is the client), and further fields may follow. Quoted fields hold `\"` and `\\` for quote and backslash; other
escapes (`\xhh`, which is how both servers write bytes that are not printable) are kept as written.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from urllib.parse import urlsplit

_QUOTED = r'"((?:[^"\\]|\\.)*)"'
_ADDRESS = r"(?:[0-9A-Za-z:._%-]+|\[[0-9A-Fa-f:.%]+\])"
_VIRTUAL_HOST = r"(?:[^\s:]+:\d{1,5} (?=\S+ \S+ \S+ \[))?"
_PARTS = (
    (
        rf"{_VIRTUAL_HOST}({_ADDRESS})(?:, ?{_ADDRESS})* \S+ \S[^\[\]]*? ",
        "does not begin with an address, an identity and a user",
    ),
    (r"\[([^\]]*)\] ", "time is not given in brackets"),
    (_QUOTED + " ", "request is not in quotes"),
    (r"(?:\d{3}|-) (?:\d+|-) ", "status or size is not a number"),
    (_QUOTED + " ", "referrer is missing or not in quotes"),
    (_QUOTED, "user agent is missing or its quote is not closed"),
    (r"(?: .*)?\Z", "text follows the user agent without a space"),
)
_LINE = re.compile("".join(pattern for pattern, _ in _PARTS), re.DOTALL)
_COMMON = re.compile("".join(pattern for pattern, _ in _PARTS[:4]).rstrip() + r"\Z", re.DOTALL)
_BEGINNINGS = [
    (re.compile("".join(pattern for pattern, _ in _PARTS[: count + 1]), re.DOTALL), reason)
    for count, (_, reason) in enumerate(_PARTS)
]
_REQUEST = re.compile(r"[A-Z][A-Z_-]* (\S.*?)(?: HTTP/\d(?:\.\d)?)?\Z", re.DOTALL)
_TIME = re.compile(r"(\d\d)/([A-Z][a-z]{2})/(\d{4}):(\d\d):(\d\d):(\d\d) ([+-]\d{4})\Z", re.ASCII)
_MONTH_NAMES = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_MONTHS = {name: number for number, name in enumerate(_MONTH_NAMES, start=1)}


class UnparseableLine(ValueError):
    """The line is not an entry of the combined or common log format; the message is the reason, without the line's text."""


@dataclass(frozen=True, slots=True)
class LogEntry:
    """What one line says. `page` is the request's path without its query; `referral` and `agent` are None for `-`.

    A line of the common format does not say who asked: `names_agent` is False then, and a nameless agent is no robot.
    """

    address: str
    time: datetime
    page: str
    referral: str | None
    agent: str | None
    names_agent: bool = True


def parse_line(text: str) -> LogEntry:
    """Parse one line without its end; raises `UnparseableLine`."""
    match = _LINE.match(text)
    common = _COMMON.match(text) if match is None else None
    if common is not None:
        address, time, request = common.groups()
        return LogEntry(
            address.strip("[]"), parse_time(time), _page(_unescaped(request)), None, None, names_agent=False
        )
    if match is None:
        raise UnparseableLine(next(reason for beginning, reason in _BEGINNINGS if beginning.match(text) is None))
    address, time, request, referrer, agent = match.groups()
    return LogEntry(address.strip("[]"), parse_time(time), _page(_unescaped(request)), _given(referrer), _given(agent))


@lru_cache(maxsize=4096)
def parse_time(text: str) -> datetime:
    """`17/May/2015:10:05:03 +0200` in UTC, whatever the process's locale; raises `UnparseableLine`."""
    match = _TIME.match(text)
    if match is None or match[2] not in _MONTHS:
        raise UnparseableLine("time is not of the form dd/Mon/yyyy:HH:MM:SS +zzzz")
    day, month, year, hour, minute, second, _ = match.groups()
    try:
        iso = f"{year}-{_MONTHS[month]:02}-{day}T{hour}:{minute}:{second}{match[7]}"
        return datetime.fromisoformat(iso).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise UnparseableLine("time does not exist in the calendar") from error


def _page(request: str) -> str:
    """Path of `GET /path?query HTTP/1.1`. Queries are dropped: they are where secrets and personal data hide."""
    match = _REQUEST.match(request)
    if match is None:
        raise UnparseableLine("request is not a method and a target")
    target = match[1]
    if not target.startswith("/") and "://" in target:
        try:
            target = urlsplit(target).path or "/"
        except ValueError as error:
            raise UnparseableLine("request's target is not a valid address") from error
    return target.split("?", 1)[0].split("#", 1)[0] or "/"


def _given(field: str) -> str | None:
    return None if field in ("-", "") else _unescaped(field)


def _unescaped(field: str) -> str:
    return re.sub(r'\\(["\\])', r"\1", field) if "\\" in field else field
