"""A topic in increments that the consumer remembers itself: read, write, and commit the position behind what was read.

Pattern: Checkpointer. A position alone promises nothing about the sink; the order of the two steps does:

| `DeliveryGuarantee`       | order                                       | a crash between them      |
|------------------|---------------------------------------------|---------------------------|
| `AT_LEAST_ONCE`  | write, then commit                          | repeats the increment     |
| `AT_MOST_ONCE`   | commit, then write                          | loses the increment       |
| `WITH_THE_WRITE` | the writer commits in its own transaction   | neither                   |

At least once together with stable keys in the sink (Keyed Idempotency) leaves each result once, too, without a transaction
that the sink and the position share.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum, auto

from de_resources.delta.write.crash_points import crash_point
from de_resources.kafka.checkpoints import Checkpoint, Checkpoints


class DeliveryGuarantee(Enum):
    """When the position is committed."""

    AT_LEAST_ONCE = auto()
    AT_MOST_ONCE = auto()
    WITH_THE_WRITE = auto()


@dataclass(frozen=True)
class Increment:
    """What is read at once: from the offsets `start` to those of `end`, by partition, the end excluded.

    Where it is cut by time, these are the records with `since` <= append time < `until`; `since` is None at the beginning.
    """

    before: Checkpoint | None
    """The checkpoint that it follows."""
    start: Mapping[int, int]
    end: Checkpoint
    since: datetime | None = None

    @property
    def offsets(self) -> int:
        """How many offsets it spans: its records, and the ends of transactions among them."""
        return sum(offset - self.start[partition] for partition, offset in self.end.offsets.items())


@dataclass(frozen=True)
class Consumed:
    """What a run did. `before` is None where it read from the beginning, `after` where there is still nothing."""

    increments: int
    offsets: int
    before: Checkpoint | None
    after: Checkpoint | None


def consume(
    name: str,
    checkpoints: Checkpoints,
    next_increment: Callable[[Checkpoint | None], Increment | None],
    write: Callable[[Increment], None],
    delivery: DeliveryGuarantee = DeliveryGuarantee.AT_LEAST_ONCE,
) -> Consumed:
    """Write increment after increment until `next_increment` has none for the checkpoint that was reached.

    `write` returns when what it wrote is durable; for `WITH_THE_WRITE` it also commits `increment.end`, in its own
    transaction, where the position is still `increment.before` (`TableCheckpoints.commit_with`). A run after one that was
    killed goes on at the last committed position. Crash points, named `name`: `before_write`, `before_commit` (written, the
    position is not known to be) and `after_commit`.

    Raises what the parts raise; increments before it stay written and committed.
    """
    before = reached = checkpoints.read()
    count = offsets = 0
    while (increment := next_increment(reached)) is not None:
        if delivery is DeliveryGuarantee.AT_MOST_ONCE:
            checkpoints.commit(increment.end)
        crash_point("before_write", name)
        write(increment)
        crash_point("before_commit", name)
        if delivery is DeliveryGuarantee.AT_LEAST_ONCE:
            checkpoints.commit(increment.end)
        crash_point("after_commit", name)
        reached, count, offsets = increment.end, count + 1, offsets + increment.offsets
    return Consumed(count, offsets, before, reached)
