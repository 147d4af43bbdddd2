"""What was decided about dead letters, landed beside the lines that it is about.

    <landing>/visits_decisions/date=2026-01-31/hour=07/<digest>.json    JSON lines, one decision each

The run of an hour reads its landed lines and these, so that a decision survives every rerun: it is input, and no state
that a run keeps. A file is complete when it has its name, is never changed, and is named after what it holds, so that
landing the same decisions again is no change.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

from de_assets.sources.landing import data_files, flush, hour_folder, hour_of, incoming
from de_assets.transforms.error_management.dead_letter import DeadLetterKind
from de_resources.delta.write.lock import commit_lock
from de_resources.errors import PermanentError

DECISIONS = "visits_decisions"


class UnreadableDecision(PermanentError):
    """A landed file that holds something else than decisions."""

    def __init__(self, file: Path, line: int) -> None:
        self.file, self.line = file, line
        super().__init__(
            f"Line {line} of `{'/'.join(file.parts[-4:])}` is no decision about a dead letter. Nothing was read or written. "
            "Remove the file, and decide again with `de dlq`."
        )


@dataclass(frozen=True, slots=True)
class Decision:
    """One decision. `attempt` is the replay that it asks for: 1 for a line as it landed; `raw` is the repaired line."""

    letter_id: str
    kind: DeadLetterKind
    attempt: int
    raw: str | None = None
    why: str | None = None


@contextmanager
def deciding(landing: Path) -> Iterator[None]:
    """Be the only one who decides, so that nobody closes a letter twice. Raises `TableBusy` after a minute."""
    with commit_lock(str(landing / DECISIONS), table=DECISIONS, shared=False, timeout=60):
        yield


def land(landing: Path, hour: datetime, decisions: Sequence[Decision]) -> bool:
    """Land the hour's decisions in one file; False where the same ones are there already.

    A process killed at any point leaves the whole file, or none that a reader sees.
    """
    content = b"".join(json.dumps(asdict(decision)).encode() + b"\n" for decision in decisions)
    folder = hour_folder(landing, hour, DECISIONS)
    file = folder / f"{hashlib.sha256(content).hexdigest()[:16]}.json"
    if file.exists():
        return False
    with incoming(landing) as drafts:
        draft = drafts / file.name
        draft.touch(mode=0o600)
        draft.write_bytes(content)
        flush(draft)
        folder.mkdir(parents=True, exist_ok=True)
        draft.replace(file)
    return True


def decision_files(landing: Path, hours: Iterable[datetime]) -> list[Path]:
    """The files with decisions about these hours."""
    return [file for hour in hours for file in data_files(hour_folder(landing, hour, DECISIONS))]


def decided(landing: Path) -> Iterator[tuple[datetime, Decision]]:
    """All decisions with the hour that each belongs to, oldest hour first. Raises `UnreadableDecision`."""
    for hour in decided_hours(landing):
        for file in decision_files(landing, [hour]):
            for number, line in enumerate(file.read_bytes().splitlines(), start=1):
                yield hour, _decision(line, file, number)


def decided_hours(landing: Path) -> list[datetime]:
    """The hours about which something was decided, oldest first."""
    found = {hour for folder in (landing / DECISIONS).glob("date=*/hour=*") if (hour := hour_of(folder)) is not None}
    return sorted(hour for hour in found if decision_files(landing, [hour]))


def decided_at(landing: Path, hour: datetime) -> float | None:
    """When the newest decision about the hour was landed (seconds since 1970), or None."""
    return max((file.stat().st_mtime for file in decision_files(landing, [hour])), default=None)


def _decision(line: bytes, file: Path, number: int) -> Decision:
    try:
        said = json.loads(line)
        return Decision(
            str(said["letter_id"]), DeadLetterKind(said["kind"]), int(said["attempt"]), said["raw"], said["why"]
        )
    except (ValueError, KeyError, TypeError):
        raise UnreadableDecision(file, number) from None
