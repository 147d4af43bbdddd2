"""How long removed files stay: the promise to running readers and to time travel.

The promise is the table property `delta.deletedFileRetentionDuration`, seven days where nothing is said. Keeping files
longer needs nobody's leave; keeping them for less breaks the promise and has to be asked for in words.
"""

from __future__ import annotations

import re
from datetime import timedelta

from de_resources.delta.log import TableLog
from de_resources.errors import PermanentError

PROPERTY = "delta.deletedFileRetentionDuration"
DEFAULT = timedelta(days=7)
OVERRIDE = "I accept that time travel and running readers may break"
"""What has to be said, letter by letter, to keep files for less than the table promises."""

_TERM = re.compile(r"(\d+)\s*(week|day|hour|minute|second)s?")


class RetentionRefused(PermanentError):
    """Files were to be removed earlier than the table promises."""

    def __init__(self, table: str, asked: timedelta, promised: timedelta) -> None:
        self.table, self.asked, self.promised = table, asked, promised
        super().__init__(
            f"`{table}` keeps removed files for {hours(promised):g} hours; a retention of {hours(asked):g} hours is "
            f"refused and nothing was removed. Ask for at least {hours(promised):g} hours, or set "
            f'`retention_override: "{OVERRIDE}"`.'
        )


class UnreadableRetention(PermanentError):
    """A table property that is no duration."""

    def __init__(self, text: str) -> None:
        self.text = text
        super().__init__(f"`{PROPERTY}` is {text[:80]!r}, which is no duration. Set it to one, e.g. `interval 7 days`.")


def hours(duration: timedelta) -> float:
    """A duration in hours."""
    return duration.total_seconds() / 3600


def retention_of(log: TableLog) -> timedelta:
    """What the table promises. Raises `UnreadableRetention`."""
    text = log.table.metadata().configuration.get(PROPERTY)
    return DEFAULT if text is None else parse(text)


def parse(text: str) -> timedelta:
    """A duration as Delta writes it: `interval 1 week`, `7 days 12 hours`. Raises `UnreadableRetention`."""
    plain = text.strip().lower().removeprefix("interval").strip()
    terms = _TERM.findall(plain)
    if not terms or _TERM.sub("", plain).strip():
        raise UnreadableRetention(text)
    return sum((timedelta(**{f"{unit}s": int(number)}) for number, unit in terms), timedelta())


def agreed(table: str, log: TableLog, asked: timedelta | None, override: str | None) -> timedelta:
    """The retention to apply: what was asked for, if the table's promise or the override allows it.

    Raises `RetentionRefused`, also for an override that is not `OVERRIDE` letter by letter.
    """
    promised = retention_of(log)
    if asked is None:
        return promised
    if asked < timedelta():
        raise PermanentError(
            f"A retention of {hours(asked):g} hours for `{table}` lies in the future. Ask for 0 or more."
        )
    if asked < promised and override != OVERRIDE:
        raise RetentionRefused(table, asked, promised)
    return asked
