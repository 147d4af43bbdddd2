"""Audits of a slice, before anything is computed and before anything is shown.

An asset names a list of them by its metadata `audits` (`package.module:NAME`); without it the rows have to keep the contract.
Each judges one partition key by figures that cost no second read: what the inputs' logs say, what the write counted on its
way, and the statistics of the staged files. The only exception: of a run over several keys the figures of the write are
totals; where these do not answer, one grouped query over the staged slices does.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from operator import attrgetter
from typing import Any, ClassVar

from de_resources.contract import Contract
from de_resources.contract.rules import Rule
from de_resources.delta.log.table_log import Stored
from de_resources.delta.publish.staging import AUDIT, PASSED, Key, StagedSlice
from de_resources.delta.publish.verdicts import AuditFinding, Judged, Reaction
from de_resources.errors import PermanentError
from de_resources.sql.identifiers import identifier
from de_resources.sql.literals import Scalar, literal

AUDITS = "audits"
"""Metadata of an asset: the import path of its audits."""


class NoAudits(PermanentError):
    """An asset's `audits` that are none."""

    def __init__(self, asset: str, path: object, why: str) -> None:
        self.asset, self.path, self.why = asset, path, why
        super().__init__(
            f"`{asset}` names the audits {path!r}: {why}. Nothing was written. Name a list of audits as `package.module:NAME`, "
            "or give the asset a `contract` to audit."
        )


@dataclass(frozen=True)
class Subject:
    """One key, and all that is known about it. Before the write, `staged` is empty.

    `inputs`: what of each input goes to the key, None where that is not known. `violations` and `measured`: of the write.
    `last`: the verdict on the last published slice before it, with which its figures may be compared.
    """

    key: Key
    contract: Contract | None
    inputs: Mapping[str, Stored | None]
    staged: StagedSlice = field(default_factory=StagedSlice)
    violations: Mapping[str, int] | None = None
    measured: Mapping[str, float | int | None] | None = None
    last: Judged | None = None


@dataclass(frozen=True, kw_only=True)
class Audit:
    """One question. A subclass answers `before`, from the inputs, or `after`, from what is staged; None: nothing to say.

    `measures` are SQL aggregates over the frame, by name, which the write takes on its way: such as the engine can observe,
    which knows neither DISTINCT nor FILTER there.
    """

    reaction: Reaction = "fail"

    def __post_init__(self) -> None:
        """Raise `PermanentError` for a reaction that the audit cannot have."""
        if self.reaction == "dispatch" and not isinstance(self, KeepsContract):
            raise PermanentError(f"`{type(self).__name__}` judges a slice as a whole: there is no bad row to dispatch.")

    @property
    def name(self) -> str:
        """How the audit is called in verdicts; unique in its list."""
        return type(self).__name__

    @property
    def compares(self) -> bool:
        """Whether it wants to know what was published last."""
        return getattr(self, "ratio", None) is not None

    def measures(self) -> Mapping[str, str]:
        """SQL aggregates that the audit needs."""
        return {}

    def before(self, subject: Subject) -> AuditFinding | None:  # noqa: ARG002 - for subclasses
        """Judge the inputs, before anything is computed."""
        return None

    def after(self, subject: Subject) -> AuditFinding | None:  # noqa: ARG002 - for subclasses
        """Judge what is staged, before anything is shown."""
        return None

    def finding(self, passed: bool, said: str, **figures: float | int) -> AuditFinding:
        """What the audit says."""
        return AuditFinding(self.name, passed, said, self.reaction, figures)


@dataclass(frozen=True, kw_only=True)
class InputFigure(Audit):
    """How much of an input there is, by one figure of its log. A subclass says which one."""

    table: str
    at_least: int = 1
    ratio: tuple[float, float] | None = None

    unit: ClassVar[str]
    of: ClassVar[Callable[[Stored], int]]

    def before(self, subject: Subject) -> AuditFinding:
        """By the input's log. Of an input without one nobody knows, and that is no pass."""
        stored = subject.inputs.get(self.table)
        if stored is None:
            return self.finding(False, _UNTOLD)
        return _volume(self, self.unit, type(self).of(stored), self.at_least, self.ratio, subject.last)


@dataclass(frozen=True, kw_only=True)
class InputRows(InputFigure):
    """An input has rows: at least so many, and by a ratio (lowest, highest) about as many as for the last published slice."""

    unit: ClassVar[str] = "rows"
    of: ClassVar[Callable[[Stored], int]] = attrgetter("rows")

    @property
    def name(self) -> str:
        """With the input's name."""
        return f"input {self.table}"


@dataclass(frozen=True, kw_only=True)
class InputSize(InputFigure):
    """An input has bytes: at least so many, and by a ratio about as many as for the last published slice.

    Rows that came as often as ever, and empty, show here.
    """

    unit: ClassVar[str] = "bytes"
    of: ClassVar[Callable[[Stored], int]] = attrgetter("bytes")

    @property
    def name(self) -> str:
        """With the input's name."""
        return f"size of input {self.table}"


@dataclass(frozen=True, kw_only=True)
class Rows(Audit):
    """The slice has rows: at least so many, and by a ratio about as many as the last published slice."""

    at_least: int = 0
    ratio: tuple[float, float] | None = None

    @property
    def name(self) -> str:
        """In verdicts."""
        return "rows"

    def after(self, subject: Subject) -> AuditFinding:
        """By the files' statistics."""
        return _volume(self, "rows", subject.staged.rows, self.at_least, self.ratio, subject.last)


@dataclass(frozen=True, kw_only=True)
class KeepsContract(Audit):
    """Every row keeps the rules of the contract; `only` these of them. With `dispatch`, rows that do not are sorted out."""

    only: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """With the rules, where not all are meant."""
        return f"contract ({', '.join(self.only)})" if self.only else "contract"

    def rules(self, contract: Contract | None) -> tuple[Rule, ...]:
        """The rules that are audited. Raises `PermanentError` for names that the contract does not have."""
        if contract is None:
            raise PermanentError(
                "`KeepsContract` audits an asset without a `contract`. Name one in the asset's metadata."
            )
        unknown = set(self.only) - {r.name for r in contract.rules}
        if unknown:
            raise PermanentError(f"The contract `{contract.name}` has no rule {', '.join(sorted(unknown))}.")
        return tuple(r for r in contract.rules if not self.only or r.name in self.only)

    def after(self, subject: Subject) -> AuditFinding:
        """By what the write counted."""
        counted = subject.violations or {}
        broken = {r.name: counted[r.name] for r in self.rules(subject.contract) if counted.get(r.name)}
        rows = subject.staged.rows + subject.staged.rejected
        if not broken:
            return self.finding(True, f"All {rows:,} rows keep it.")
        listed = ", ".join(f"{rule}: {n:,}" for rule, n in sorted(broken.items(), key=lambda item: -item[1]))
        if self.reaction == "dispatch":
            return self.finding(
                False, f"{subject.staged.rejected:,} of {rows:,} rows are sorted out ({listed}).", **broken
            )
        return self.finding(False, f"Of {rows:,} rows some break {len(broken)} rule(s) ({listed}).", **broken)


@dataclass(frozen=True, kw_only=True)
class NullShare(Audit):
    """At most this share of a column's values is null."""

    column: str
    at_most: float

    @property
    def name(self) -> str:
        """With the column."""
        return f"nulls of {self.column}"

    def after(self, subject: Subject) -> AuditFinding:
        """By the files' statistics."""
        rows, nulls = subject.staged.rows, subject.staged.nulls(self.column)
        if nulls is None:
            return self.finding(False, "The files have no statistics of it, so that nobody knows.")
        share = nulls / rows if rows else 0.0
        said = f"{nulls:,} of {rows:,} are null, at most {self.at_most:.2%} are accepted."
        return self.finding(share <= self.at_most, said, share=round(share, 6))


@dataclass(frozen=True, kw_only=True)
class Within(Audit):
    """All values of a column that are not null lie between these, both included; NaN lies nowhere.

    The write counts those that do not. The files' statistics would not do: they lack bounds of columns beyond the indexed ones
    and of files with a NaN, and round those of times and of long texts.
    """

    column: str
    low: Scalar | None = None
    high: Scalar | None = None

    def __post_init__(self) -> None:
        """Raise `PermanentError` where there is nothing to compare with."""
        super().__post_init__()
        try:
            found = [literal(each) for each in (self.low, self.high) if each is not None]
        except (TypeError, ValueError) as error:
            raise PermanentError(f"`Within` cannot compare `{self.column}`: {error}. Name another bound.") from None
        if not found:
            raise PermanentError(f"`Within` has no bound for `{self.column}`. Name `low`, `high` or both.")

    @property
    def name(self) -> str:
        """With the column."""
        return f"range of {self.column}"

    def measures(self) -> Mapping[str, str]:
        """How many of the rows that can be published have a value outside."""
        column = identifier(self.column)
        outside = [
            *([] if self.low is None else [f"{column} < {literal(self.low)}"]),
            *([] if self.high is None else [f"{column} > {literal(self.high)}"]),
            *([f"isnan({column})"] if any(_is_number(each) for each in (self.low, self.high)) else []),
        ]
        return {self.name: f"count(CASE WHEN {AUDIT} = '{PASSED}' AND ({' OR '.join(outside)}) THEN 1 END)"}

    def after(self, subject: Subject) -> AuditFinding:
        """By what the write counted. No value is told."""
        outside, rows = (subject.measured or {}).get(self.name), subject.staged.rows
        if outside is None:
            return self.finding(rows == 0, "Nobody counted its values.")
        low, high = ("any" if each is None else each for each in (self.low, self.high))
        said = f"{outside:,} of {rows:,} rows have a value outside of {low} to {high}."
        return self.finding(outside == 0, said, outside=outside)


@dataclass(frozen=True, kw_only=True)
class Measured(Audit):
    """An SQL aggregate over the slice lies between bounds, and by a ratio near that of the last published slice."""

    what: str
    sql: str
    low: float | None = None
    high: float | None = None
    ratio: tuple[float, float] | None = None

    @property
    def name(self) -> str:
        """As the asset says."""
        return self.what

    def measures(self) -> Mapping[str, str]:
        """The aggregate."""
        return {self.what: self.sql}

    def after(self, subject: Subject) -> AuditFinding:
        """By what the write measured. An aggregate without a value (of no row, or not a number) passes only without rows."""
        value = (subject.measured or {}).get(self.what)
        if value is None or value != value:
            return self.finding(subject.staged.rows == 0, "It has no value.")
        before = subject.last.figures.get(f"{self.name}/value") if subject.last else None
        passed = (self.low is None or value >= self.low) and (self.high is None or value <= self.high)
        said = f"It is {value:g}, accepted is {_span(self.low, self.high)}"
        if self.ratio and before:
            passed = passed and self.ratio[0] <= value / before <= self.ratio[1]
            said += f"; {value / before:.2f}x of the last, accepted is {_span(*self.ratio)}x"
        return self.finding(passed, f"{said}.", value=value)


@dataclass(frozen=True, kw_only=True)
class ReconcilesWithInput(Audit):
    """An SQL aggregate over the slice equals the number of the input's rows: nothing was lost, nothing counted twice."""

    table: str
    sql: str

    @property
    def name(self) -> str:
        """With the input's name."""
        return f"reconciles with {self.table}"

    def measures(self) -> Mapping[str, str]:
        """The aggregate."""
        return {self.name: self.sql}

    def after(self, subject: Subject) -> AuditFinding:
        """By what the write measured and the input's log says."""
        counted, stored = (subject.measured or {}).get(self.name) or 0, subject.inputs.get(self.table)
        if stored is None:
            return self.finding(True, "The input's log does not tell its rows, or they changed meanwhile.")
        said = f"{counted:,} were counted from {stored.rows:,} rows."
        return self.finding(counted == stored.rows, said, counted=counted, rows=stored.rows)


def audits_of(asset: str, metadata: Mapping[str, Any], contract: Contract | None) -> tuple[Audit, ...]:
    """The audits that an asset names, or those of its contract. Raises `NoAudits`."""
    path = metadata.get(AUDITS)
    if path is None:
        if contract is None:
            raise NoAudits(asset, path, "it has no contract either")
        return (KeepsContract(),)
    module, _, name = str(path).partition(":")
    try:
        found: Sequence[Audit] = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise NoAudits(asset, path, str(error)) from error
    if not isinstance(found, Sequence) or not found or not all(isinstance(each, Audit) for each in found):
        raise NoAudits(asset, path, "it is no list of audits")
    names = [each.name for each in found]
    if len(set(names)) < len(names):
        raise NoAudits(asset, path, "two of them have one name")
    return tuple(found)


_UNTOLD = "No log tells how much of it there is, so that nobody knows."


def _volume(
    audit: Audit, unit: str, found: int, at_least: int, ratio: tuple[float, float] | None, last: Judged | None
) -> AuditFinding:
    said, passed = f"{found:,} {unit}, at least {at_least:,} are accepted", found >= at_least
    before = last.figures.get(f"{audit.name}/{unit}") if last else None
    if ratio and before:
        passed = passed and ratio[0] <= found / before <= ratio[1]
        said += f"; {found / before:.2f}x of the last published, accepted is {_span(*ratio)}x"
    return audit.finding(passed, f"{said}.", **{unit: found})


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def _span(low: float | None, high: float | None) -> str:
    return f"{'any' if low is None else format(low, 'g')} to {'any' if high is None else format(high, 'g')}"
