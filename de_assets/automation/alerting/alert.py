"""What an alert says: which dataset, which partitions, which check or error, in which run. Never whose data.

Messages of errors may quote the data that caused them. Only the first line is kept, and of that only words: quoted
values, addresses and long numbers are masked, control characters removed, so that a message can neither leak a person
nor forge a second line in a log.
"""

import re
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Self

from de_resources.contract import REDACTED

MESSAGE_LENGTH = 200
PARTITIONS_SHOWN = 10

_VALUES = re.compile(
    r"""
      [a-z][a-z0-9+.-]*://\S+                   # addresses of services, with what may stand before the @
    | [\w.+-]+@[\w-]+(?:\.[\w-]+)*              # e-mail
    | \b\d{1,3}(?:\.\d{1,3}){3}\b               # IPv4
    | (?<![\w:])[0-9a-f]{0,4}(?::[0-9a-f]{0,4}){2,7}(?![\w:])   # IPv6
    | "[^"]*"? | (?<!\w)'[^']*'?                # quoted values; names of columns and tables stand in backquotes
    | \b(?=\w*\d)[\w-]{12,}\b                   # tokens, hashes, long identifiers
    | \b\d{5,}\b
    """,
    re.IGNORECASE | re.VERBOSE,
)


@dataclass(frozen=True)
class Alert:
    """One piece of bad news, before the book knows whether it is any (`de_resources.alerts.book`)."""

    kind: str
    """`check_failed`, `run_failed`, `step_overdue`, `partition_missing`, `service_failed`, `channel_broken`."""
    severity: str
    """`ERROR` or `WARN`."""
    run_id: str | None
    time: str
    """When it happened, ISO 8601 in UTC."""
    assets: tuple[str, ...]
    partitions: tuple[str, ...] = ()
    """The first few, in order; a range is `first...last`."""
    partition_count: int = 0
    """How many keys there are, shown or not; a range counts once."""
    check: str | None = None
    step: str | None = None
    error: str | None = None
    """Class of the error that started it."""
    message: str | None = None
    """First line of the error, without values."""

    @classmethod
    def of_platform(cls, kind: str, now: datetime, message: str | None) -> Self:
        """News of the platform itself, as it is at this moment: of no run and no asset. None: there is nothing bad to say."""
        return cls(kind, "ERROR", None, now.isoformat(timespec="seconds"), (), message=message)

    def fields(self) -> dict[str, Any]:
        """The alert as plain values for JSON, without what is unknown."""
        return {name: value for name, value in asdict(self).items() if value not in (None, ())}

    def sentence(self) -> str:
        """The alert in one line for people."""
        what = self.message or self.kind
        if self.kind == "check_failed":
            what = f"Check `{self.check}` failed"
        elif self.kind == "run_failed":
            what = f"Run failed with {self.error or 'an unknown error'}"
        where = f" for {', '.join(self.assets)}" if self.assets else ""
        more = self.partition_count - len(self.partitions)
        keys = f" [{', '.join(self.partitions)}{f' and {more} more' if more > 0 else ''}]" if self.partitions else ""
        run = f", run {self.run_id}" if self.run_id else ""
        return f"{self.severity}: {what}{where}{keys}{run}"

    def body(self) -> dict[str, Any]:
        """The alert as the book and the channels have it: its fields, and a line for people."""
        return {**self.fields(), "text": self.sentence()}


def redacted(message: str) -> str:
    """The first line of a message with every value masked, at most `MESSAGE_LENGTH` characters, printable only."""
    first = next((line for line in message.splitlines() if line.strip()), "")
    masked = _VALUES.sub(REDACTED, printable(first[: 10 * MESSAGE_LENGTH]))
    return masked if len(masked) <= MESSAGE_LENGTH else masked[: MESSAGE_LENGTH - 1] + "…"


def printable(text: str) -> str:
    """The text without control, format and line-separating characters."""
    return "".join(c if c.isprintable() else " " for c in text).strip()
