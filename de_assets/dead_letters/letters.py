"""Dead letters of visits for people: which there are, and what may be decided about each of them.

The table says what the last run made of a letter, the landed decisions what was decided since. Everything here reads the
files without the engine, in memory that grows with the dead letters and not with the visits.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import reduce
from operator import and_
from pathlib import Path

import pyarrow.dataset as ds
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from de_assets.sources.decisions import Decision
from de_assets.transforms.error_management.dead_letter import FINAL, OPEN, DeadLetterKind, identify
from de_resources.errors import PermanentError

_COLUMNS = (
    "letter_id",
    "landing_hour",
    "reason",
    "field",
    "status",
    "attempts",
    "repair_of",
    "source_file",
    "source_line",
    "why",
)
_LONGEST_REASON = 500


class NoDeadLetters(PermanentError):
    """There is no table of dead letters yet."""

    def __init__(self) -> None:
        super().__init__(
            "There are no dead letters yet: `bronze/visits_dead_letter` was never materialised. Run `de run`."
        )


class UnknownLetter(PermanentError):
    """An identity that no dead letter has."""

    def __init__(self, letter_id: str, where: str) -> None:
        self.letter_id, self.where = letter_id, where
        super().__init__(
            f"{where}: there is no dead letter `{letter_id[:80]}`. Nothing was decided. `de dlq inspect` shows them."
        )


class UnusableRepair(PermanentError):
    """A line of a file of repaired lines that cannot be taken; line 0 is the file as a whole."""

    def __init__(self, file: str, line: int, why: str) -> None:
        self.file, self.line = file, line
        where = f"{file}, line {line}" if line else file
        super().__init__(f"{where}: {why}. Nothing was decided. Mend the file and replay it again.")


class NoDiscardReason(PermanentError):
    """A discard without words, or with too many."""

    def __init__(self) -> None:
        super().__init__(f"Say `--why` in 1 to {_LONGEST_REASON} characters; it is kept with the letter.")


@dataclass(frozen=True, slots=True)
class Letter:
    """One dead letter as the table has it. `raw` is personal data, and there only where it was asked for."""

    letter_id: str
    hour: datetime
    reason: str
    field: str | None
    status: str
    attempts: int
    repair_of: str | None
    source_file: str
    source_line: int | None
    why: str | None
    raw: str | None = None


@dataclass(frozen=True, slots=True)
class Repaired:
    """One line of a file of repaired lines, and where it stands."""

    line: int
    letter_id: str
    raw: str


@dataclass
class DecidedLetters:
    """What is to be landed, by hour; and what is not, with the reason for it."""

    hours: dict[datetime, list[Decision]] = field(default_factory=lambda: defaultdict(list))
    concerned: set[datetime] = field(default_factory=set)
    """The hours of all letters that were named, decided before ones included."""
    due: set[datetime] = field(default_factory=set)
    """Hours to be run whether they have taken in all decisions or not."""
    resolved: dict[str, str] = field(default_factory=dict)
    """Letters about which nothing is left to decide, and what became of them."""
    unchanged: set[str] = field(default_factory=set)
    """Letters that stay open, because their line is the same as before."""

    def add(self, hour: datetime, decision: Decision) -> None:
        """Decide about a letter of this hour."""
        self.hours[hour].append(decision)
        self.concerned.add(hour)

    @property
    def letters(self) -> int:
        """How many lines something is decided about."""
        return sum(map(len, self.hours.values()))


def letters(
    table: str,
    *,
    hours: Sequence[datetime] | None = None,
    reason: str | None = None,
    status: str | None = None,
    with_raw: bool = False,
) -> Iterator[Letter]:
    """The letters of these hours, with this reason and status; all unless told which. Raises `NoDeadLetters`.

    Tables of earlier versions have no identity and no status: the one is computed, the other is `open`.
    """
    try:
        data = DeltaTable(table).to_pyarrow_dataset()
    except TableNotFoundError:
        raise NoDeadLetters from None
    present = set(data.schema.names)
    # A filter on nulls would not find them: files that lack the column have no statistics of it.
    aged = "letter_id" not in present or data.to_table(columns=["letter_id"])["letter_id"].null_count > 0
    further = (["raw"] if with_raw else []) + (["payload"] if aged else [])
    columns = [c for c in (*_COLUMNS, *further) if c in present]
    conditions = [] if hours is None else [ds.field("landing_hour").isin(list(hours))]
    conditions += [] if reason is None else [ds.field("reason") == reason]
    chosen = reduce(and_, conditions) if conditions else None
    for batch in data.to_batches(columns=columns, filter=chosen, batch_size=10_000):
        for row in batch.to_pylist():
            letter = _letter(row)
            if status in (None, letter.status):
                yield letter


def _letter(row: Mapping[str, object]) -> Letter:
    known = {column: row.get(column) for column in _COLUMNS}
    payload, repair_of, hour = row.get("payload"), row.get("repair_of"), row["landing_hour"]
    assert isinstance(hour, datetime)  # noqa: S101 - the column's type
    if known["letter_id"] is None and isinstance(payload, bytes):
        known["letter_id"] = identify(hour, payload, str(repair_of) if repair_of else None)
    known.update(hour=hour, status=known["status"] or OPEN, attempts=known["attempts"] or 0, raw=row.get("raw"))
    del known["landing_hour"]
    return Letter(**known)  # type: ignore[arg-type]


def read_repaired(file: Path) -> list[Repaired]:
    """The lines of a file of repaired lines: JSON objects with `id` and `raw`; blank ones are passed over.

    Raises `UnusableRepair`, which names the line and never shows it.
    """
    try:
        lines = file.read_bytes().splitlines()
    except OSError as error:
        raise UnusableRepair(file.name, 0, f"it cannot be read ({error.strerror})") from None
    return [_repaired(line, file.name, number) for number, line in enumerate(lines, start=1) if line.strip()]


def _repaired(line: bytes, file: str, number: int) -> Repaired:
    try:
        said = json.loads(line)
        letter_id, raw = said["id"], said["raw"]
    except (ValueError, KeyError, TypeError):
        raise UnusableRepair(file, number, "it is no JSON object with `id` and `raw`") from None
    if not isinstance(letter_id, str) or not isinstance(raw, str):
        raise UnusableRepair(file, number, "`id` and `raw` must be texts")
    if not raw.strip() or "\n" in raw or "\r" in raw:
        raise UnusableRepair(file, number, "`raw` must be one line, and not an empty one")
    try:
        raw.encode()
    except UnicodeEncodeError:
        raise UnusableRepair(file, number, "`raw` holds half a character, which is no UTF-8") from None
    return Repaired(number, letter_id, raw)


def repairs(
    file: str, repaired: Iterable[Repaired], known: Iterable[Letter], decided: Mapping[str, tuple[datetime, Decision]]
) -> DecidedLetters:
    """Repaired lines as decisions: one line for each copy of a letter; lines that nobody changed are left out.

    Raises `UnknownLetter`, and `UnusableRepair` for more lines than the letter has copies; both name the line.
    """
    plan, copies = DecidedLetters(), _by_id(known)
    taken: dict[str, int] = defaultdict(int)
    for line in repaired:
        letter_id = line.letter_id
        if letter_id not in copies and letter_id not in decided:
            raise UnknownLetter(letter_id, f"{file}, line {line.line}")
        if _is_resolved(letter_id, copies, decided, plan):
            continue
        same = copies[letter_id]
        if line.raw == same[0].raw:
            plan.unchanged.add(letter_id)
            continue
        taken[letter_id] += 1
        if taken[letter_id] > len(same):
            raise UnusableRepair(
                file, line.line, f"the letter `{letter_id}` has {len(same)} line(s) in the file already"
            )
        plan.add(same[0].hour, Decision(letter_id, DeadLetterKind.REPAIRED, _attempts(same, decided) + 1, raw=line.raw))
    return plan


def retries(known: Iterable[Letter], decided: Mapping[str, tuple[datetime, Decision]]) -> DecidedLetters:
    """Every open letter's own line once more. It is marked once: later retries only run its hour again."""
    plan, copies = DecidedLetters(), _by_id(known)
    for letter_id, same in copies.items():
        if _is_resolved(letter_id, copies, decided, plan):
            continue
        plan.due.add(same[0].hour)
        if letter_id not in decided:
            plan.add(same[0].hour, Decision(letter_id, DeadLetterKind.RETRIED, _attempts(same, decided) + 1))
    return plan


def discards(
    ids: Iterable[str], known: Iterable[Letter], decided: Mapping[str, tuple[datetime, Decision]], why: str
) -> DecidedLetters:
    """The letters given up, for a reason in a person's words. Raises `UnknownLetter` and `NoDiscardReason`."""
    if not 1 <= len(why.strip()) <= _LONGEST_REASON:
        raise NoDiscardReason
    plan, copies = DecidedLetters(), _by_id(known)
    for number, letter_id in enumerate(dict.fromkeys(ids), start=1):
        if letter_id not in copies and letter_id not in decided:
            raise UnknownLetter(letter_id, f"identity {number}")
        if not _is_resolved(letter_id, copies, decided, plan):
            same = copies[letter_id]
            plan.add(
                same[0].hour, Decision(letter_id, DeadLetterKind.DISCARDED, _attempts(same, decided), why=why.strip())
            )
    return plan


def _by_id(known: Iterable[Letter]) -> dict[str, list[Letter]]:
    copies: dict[str, list[Letter]] = defaultdict(list)
    for letter in known:
        copies[letter.letter_id].append(letter)
    return dict(copies)


def _attempts(same: Sequence[Letter], decided: Mapping[str, tuple[datetime, Decision]]) -> int:
    found = decided.get(same[0].letter_id)
    return max([letter.attempts for letter in same] + ([found[1].attempt] if found else []))


def _is_resolved(
    letter_id: str,
    copies: Mapping[str, Sequence[Letter]],
    decided: Mapping[str, tuple[datetime, Decision]],
    plan: DecidedLetters,
) -> bool:
    """Whether nothing is left to decide about the letter; the plan is told what became of it."""
    found = decided.get(letter_id)
    if found is not None and found[1].kind in FINAL:
        plan.resolved[letter_id] = str(found[1].kind)
        plan.concerned.add(found[0])
    elif letter_id not in copies and found is not None:
        plan.resolved[letter_id] = "understood"
        plan.concerned.add(found[0])
    elif copies[letter_id][0].status != OPEN:
        plan.resolved[letter_id] = copies[letter_id][0].status
        plan.concerned.add(copies[letter_id][0].hour)
    return letter_id in plan.resolved


def newest(landed: Iterable[tuple[datetime, Decision]]) -> dict[str, tuple[datetime, Decision]]:
    """The decision in force about each letter: one that closes it, else the last attempt."""
    found: dict[str, tuple[datetime, Decision]] = {}
    for hour, decision in landed:
        weight = (decision.kind in FINAL, decision.attempt)
        before = found.get(decision.letter_id)
        if before is None or weight > (before[1].kind in FINAL, before[1].attempt):
            found[decision.letter_id] = (hour, decision)
    return found
