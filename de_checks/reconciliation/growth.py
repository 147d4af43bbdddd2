"""By how much a stateful table grew with each of its partitions: from its log and its old versions, without the engine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime

import dagster as dg
import pyarrow.compute as pc
from deltalake.exceptions import DeltaError

from de_resources.compat.delta_tables import table_at
from de_resources.delta.log import TableLog
from de_resources.delta.write.merge_state import MergeState

Start = Callable[[str], datetime | None]
"""When a partition begins; None: it is none of the calendar's."""


@dataclass(frozen=True)
class Grown:
    """`rows` by the start of the partition that brought them.

    `awaited` are partitions that were taken out and are to come back. `unknown` are the starts of those whose versions
    cannot be read any more.
    """

    rows: Counter[datetime] = field(default_factory=Counter)
    awaited: frozenset[str] = frozenset()
    unknown: frozenset[datetime] = frozenset()


def grown(log: TableLog, asset: dg.AssetKey, column: str, start_of: Start) -> Grown:
    """How the sum of `column` grew with each partition that is in the table, whatever others changed in between included.

    Reads the column once for each partition: as it was before the next one came in. A partition of another calendar is a step
    as well, and told to nobody.
    """
    state = MergeState.of(log, asset.to_user_string())
    found: Counter[datetime] = Counter()
    unknown = set()
    sums = dict(_sums(log, state, column))
    before = 0 if state.complete else None
    for entry in state.entries:
        after, start = sums.get(entry.version), start_of(entry.key)
        if start is not None and (before is None or after is None):
            unknown.add(start)
        elif start is not None:
            found[start] = (after or 0) - (before or 0)
        before = after
    return Grown(found, frozenset(state.replay), frozenset(unknown))


def _sums(log: TableLog, state: MergeState, column: str) -> Iterator[tuple[int, int]]:
    """The sum by the version of the entry, from the newest one back to where the table's past is gone."""
    for entry in reversed(state.entries):
        try:
            table = table_at(log.table, state.end_of(entry))
            rows = table.to_pyarrow_dataset().to_table(columns=[column])
        except (DeltaError, FileNotFoundError):
            return
        yield entry.version, pc.sum(rows.column(column)).as_py() or 0
