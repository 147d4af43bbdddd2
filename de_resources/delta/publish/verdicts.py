"""What audits found, as values that the logs keep: a finding per audit, a verdict per partition key and staged version."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from de_resources.delta.publish.staging import WHOLE, Key

Reaction = Literal["fail", "dispatch", "annotate"]
"""`fail` holds the slice, `dispatch` publishes it without the bad rows, `annotate` publishes it and says what was found."""


@dataclass(frozen=True)
class AuditFinding:
    """What one audit says about one key: `said` is a sentence for people without any row's values, `figures` are behind it."""

    audit: str
    passed: bool
    said: str
    reaction: Reaction = "fail"
    figures: Mapping[str, float | int] = field(default_factory=dict)

    @property
    def holds(self) -> bool:
        """Whether the slice is not to be shown."""
        return not self.passed and self.reaction == "fail"


@dataclass(frozen=True)
class Judged:
    """The verdict on one key of a staged version. `staged` is None where an audit of the input let nothing be computed."""

    staged: int | None
    rows: int
    rejected: int
    findings: tuple[AuditFinding, ...]
    violations: int = 0
    """How many rules the rows break that can be published, counted row by row."""

    @property
    def held(self) -> bool:
        """Whether an audit that holds has failed."""
        return any(f.holds for f in self.findings)

    @property
    def figures(self) -> dict[str, float | int]:
        """All figures, as `audit/name`."""
        return {f"{f.audit}/{name}": value for f in self.findings for name, value in f.figures.items()}

    def told(self) -> str:
        """One line for people."""
        failed = [f for f in self.findings if not f.passed]
        if failed:
            return " ".join(f"{f.audit}: {f.said}" for f in sorted(failed, key=lambda f: not f.holds))
        return f"{self.rows:,} rows passed {len(self.findings)} audit(s)."

    def as_json(self) -> dict[str, Any]:
        """For the stamp of a commit."""
        return asdict(self)

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> Judged:
        """From the stamp of a commit."""
        return cls(**{**told, "findings": tuple(AuditFinding(**finding) for finding in told["findings"])})


def keyed_texts(by_key: Mapping[Key, Judged]) -> dict[str, Any]:
    """Verdicts by the text of their key, for a stamp."""
    return {WHOLE if key is None else key: judged.as_json() for key, judged in by_key.items()}


def from_texts(told: Mapping[str, Any]) -> dict[str, Judged]:
    """The same back; the whole table's key is a text here."""
    return {key: Judged.from_json(each) for key, each in told.items()}


def markdown(findings: Iterable[AuditFinding]) -> str:
    """The findings as a table for people."""
    rows: Sequence[str] = [
        f"| {f.audit} | {'passed' if f.passed else f.reaction} | {f.said.replace('|', '¦')} |" for f in findings
    ]
    return "\n".join(["| audit | verdict | what it found |", "|---|---|---|", *rows])
