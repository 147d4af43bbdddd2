"""A process that writes batches into a topic as an engine would, and that dies where it is told to.

Its work: `config`, `topic`, `application`, `checkpoint` (a file that holds the batch that comes next), `batches` (where to
stop), `die_at` (the number of crash points to pass; absent: live). What a batch has follows from its number. Prints the
crash point at which it dies.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from de_resources.delta.write.crash_points import at
from de_resources.kafka.writer import KeyedRecord, TopicOutput, TopicWriter

RECORDS = 20


def records_of(batch: int) -> list[KeyedRecord]:
    """The same in every process."""
    return [KeyedRecord(f"k{batch}-{n}".encode(), f"{batch:04}-{n:02}".encode()) for n in range(RECORDS)]


class Death:
    """Counts crash points, and comes at one of them."""

    def __init__(self, at_number: int | None) -> None:
        self._left = at_number

    def passed(self, point: str) -> None:
        """One more."""
        if self._left is None:
            return
        self._left -= 1
        if not self._left:
            print(point, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)


def main(work: dict[str, Any]) -> None:
    """Write from the checkpoint on."""
    checkpoint, death = Path(work["checkpoint"]), Death(work.get("die_at"))
    output = TopicOutput(work["config"], work["topic"], work["application"])
    with ExitStack() as stack:
        for point in ("before_commit", "after_commit"):
            stack.enter_context(at(point, lambda _, point=point: death.passed(point)))
        writer = stack.enter_context(TopicWriter(output))
        first = int(checkpoint.read_text()) if checkpoint.exists() else 0
        for batch in range(first, work["batches"]):
            writer.write(batch, _slowly(batch, death))
            death.passed("unacknowledged")
            _acknowledge(checkpoint, batch)
            death.passed("between_batches")


def _slowly(batch: int, death: Death) -> Iterator[KeyedRecord]:
    for number, record in enumerate(records_of(batch)):
        if number == RECORDS // 2:
            death.passed("within_the_batch")
        yield record


def _acknowledge(checkpoint: Path, batch: int) -> None:
    draft = checkpoint.with_suffix(".draft")
    draft.write_text(str(batch + 1))
    draft.replace(checkpoint)
