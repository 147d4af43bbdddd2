"""What the doctor says about one thing: how it is, and for what is not well, what to do."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum


class FindingVerdict(StrEnum):
    """OK: nothing to do. WARN: something optional is missing, the rest works. FAIL: commands will not work."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True)
class Finding:
    """One line of the report. `remedy` is there for every verdict but OK, with the exact command where one helps."""

    name: str
    verdict: FindingVerdict
    detail: str
    remedy: str | None = None

    def as_dict(self) -> dict[str, str | None]:
        """Plain values, ready for JSON."""
        return asdict(self) | {"verdict": str(self.verdict)}


def ok(name: str, detail: str) -> Finding:
    """All is well."""
    return Finding(name, FindingVerdict.OK, detail)


def warn(name: str, detail: str, remedy: str) -> Finding:
    """Something optional is missing."""
    return Finding(name, FindingVerdict.WARN, detail, remedy)


def fail(name: str, detail: str, remedy: str) -> Finding:
    """Commands will fail because of this."""
    return Finding(name, FindingVerdict.FAIL, detail, remedy)
