"""Lines of an access log as visits, rejected or blank lines: each line of each file is exactly one of the three."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from de_assets.sources.access_log.files import RawLine, access_log_files, raw_lines
from de_assets.sources.access_log.grammar import LogEntry, UnparseableLine, parse_line
from de_assets.sources.access_log.visitors import pseudonyms, technical
from de_assets.sources.landing import Progress, rejected_line

EARLIEST = datetime(1991, 8, 6, tzinfo=UTC)
"""The day of the first public web server: a log with an older time comes from a machine whose clock was not set."""


@dataclass(frozen=True, slots=True)
class Visit:
    """A line that parsed: its moment and its record as one JSON line, ending in a line feed."""

    event_time: datetime
    json_line: bytes


@dataclass(frozen=True, slots=True)
class Rejected:
    """A line that did not parse. `raw` is its text; bytes that are not UTF-8 read as `\\xhh`."""

    raw: str
    reason: str
    line: int
    file: str

    @property
    def json_line(self) -> bytes:
        """The envelope in which the line lands."""
        return rejected_line(self.raw, self.reason, self.line, self.file)


@dataclass(frozen=True, slots=True)
class Blank:
    """A line of nothing but white space."""

    line: int
    file: str


def read_access_log(
    paths: Iterable[Path | str], key: bytes, progress: Progress | None = None, *, latest: datetime | None = None
) -> Iterator[Visit | Rejected | Blank]:
    """Yield every line of the logs, oldest file first, in bounded memory.

    `user_id` is a keyed hash of address and user agent, `visit_id` one of the whole raw line, so that exact copies of
    a line share it. Bytes that are not UTF-8 become `\\xhh`, the notation in which the servers themselves write them:
    a JSON line must be valid UTF-8, and so nothing is lost. `progress` counts bytes on disk. A line of a time after `latest`
    or before `EARLIEST` is rejected. Raises `NoAccessLogError` and `WeakKeyError` before the first line, nothing afterwards.
    """
    pseudonym = pseudonyms(key)
    files = access_log_files(paths)
    return (_read(line, pseudonym, latest) for line in raw_lines(files, progress))


def _read(line: RawLine, pseudonym: Callable[[bytes], str], latest: datetime | None) -> Visit | Rejected | Blank:
    text = line.raw.decode("utf-8", errors="backslashreplace")
    if line.damage is not None:
        return Rejected(text, line.damage, line.number, line.file)
    if not text.strip():
        return Blank(line.number, line.file)
    try:
        entry = parse_line(text)
    except UnparseableLine as error:
        return Rejected(text, str(error), line.number, line.file)
    if entry.time < EARLIEST or (latest is not None and entry.time > latest):
        return Rejected(text, "time is before the first web server, or in the future", line.number, line.file)
    return Visit(entry.time, json.dumps(_record(entry, line.raw, pseudonym)).encode() + b"\n")


def _record(entry: LogEntry, raw: bytes, pseudonym: Callable[[bytes], str]) -> dict[str, object]:
    """The visit of the landing contract."""
    client = technical(entry.agent)
    return {
        "visit_id": pseudonym(raw),
        "event_time": entry.time.isoformat(),
        "user_id": pseudonym(f"{entry.address}\n{entry.agent or ''}".encode()),
        "keep_private": False,
        "page": entry.page,
        "context": {
            "referral": entry.referral,
            "ad_id": None,
            "user": {"ip": entry.address, "login": None, "connected_since": None},
            "technical": {
                "browser": client.browser,
                "browser_version": client.browser_version,
                "network_type": None,
                "device_type": client.device_type,
                "device_version": client.device_version,
                "is_bot": client.is_bot if entry.names_agent else None,
            },
        },
    }
