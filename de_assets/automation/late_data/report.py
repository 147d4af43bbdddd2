"""What people see of late data: the external asset `observability/late_partitions`.

Each observation of it is one piece of news about one consumer: which closed partitions changed, by which commit, and what
became of them. It carries the numbers of what was requested, refused and is waiting, which the UI plots, and the list of
all partitions that are not up to date at that moment.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

import dagster as dg

from de_assets.dataset import pattern_tags
from de_resources.late_data.plan import NEWS, REFUSED, JudgedPartition, LateVerdict

LATE_PARTITIONS = dg.AssetKey(["observability", "late_partitions"])
ROWS_SHOWN = 50

_QUIET = frozenset({LateVerdict.UP_TO_DATE, LateVerdict.UNPROCESSED, LateVerdict.CURRENT})

late_partitions = dg.AssetSpec(
    LATE_PARTITIONS,
    description="Closed partitions that changed after they were processed: why, what was requested again, and what was "
    "refused. Look at its events; each has the list of that moment.",
    owners=["team:platform"],
    group_name="observability",
    kinds={"postgres"},
    tags=pattern_tags("dynamic_late_data_integrator"),
)


def observation(
    consumer: str, source: str, judged: Sequence[JudgedPartition], news: Collection[JudgedPartition]
) -> dg.AssetObservation:
    """One event: what is new about a consumer, and all that is not up to date."""
    counts = Counter(found.verdict for found in judged)
    open_ = [found for found in judged if found.verdict not in _QUIET]
    told = Counter(found.verdict for found in news)
    return dg.AssetObservation(
        LATE_PARTITIONS,
        description=f"{consumer}: " + ", ".join(f"{n} {verdict}" for verdict, n in sorted(told.items())),
        metadata={
            "late/consumer": consumer,
            "late/source": source,
            "late/news": dg.MetadataValue.md(as_table(list(news))),
            "late/open": dg.MetadataValue.md(as_table(open_)),
            "late/requested": counts[LateVerdict.REQUESTED],
            "late/refused": sum(counts[verdict] for verdict in REFUSED),
            "late/waiting": len(open_) - counts[LateVerdict.REQUESTED] - sum(counts[verdict] for verdict in REFUSED),
        },
    )


def as_table(judged: Sequence[JudgedPartition]) -> str:
    """Partitions, why they are late, and what becomes of them; the newest first."""
    head = [
        "| partition | what becomes of it | changed in version | by | run | read so far | attempt |",
        "|---|---|---|---|---|---|---|",
    ]
    shown = sorted(judged, key=lambda found: found.partition.end, reverse=True)
    rows = [_row(found) for found in shown[:ROWS_SHOWN]]
    return "\n".join([*head, *rows, *([f"and {len(shown) - ROWS_SHOWN} more"] if len(shown) > ROWS_SHOWN else [])])


def told_of(judged: JudgedPartition) -> str:
    """What people are told of a partition, in a form in which the same news are the same text; empty: nothing."""
    return f"{judged.verdict}: {judged.need}, attempt {judged.attempt}" if judged.verdict in NEWS else ""


def summary(consumer: str, judged: Sequence[JudgedPartition], through: int) -> str:
    """One line on what an evaluation saw."""
    counts = Counter(found.verdict for found in judged)
    told = ", ".join(f"{n} {verdict}" for verdict, n in sorted(counts.items())) or "nothing changed yet"
    return f"{consumer} (source at version {through}): {told}"


def _row(judged: JudgedPartition) -> str:
    partition, change = judged.partition, judged.partition.change
    read = "unknown" if partition.processed_version is None else str(partition.processed_version)
    by = (str(change.version), change.operation, change.run[:8] or "somebody else") if change else ("", "", "")
    return f"| {' | '.join([partition.key, f'{judged.verdict} ({judged.need})', *map(_cell, by), read, str(judged.attempt)])} |"


def _cell(text: str) -> str:
    return "".join(c if c.isprintable() and c != "|" else " " for c in text)[:60]
