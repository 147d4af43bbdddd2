"""Dead-Letter: what was decided about rejected lines takes part in reading them again.

Source: pattern *Dead-Letter*. A line is in one of two outputs, always: understood, or rejected with a status. A repaired
line is a further line beside the rejected one, which stays and is closed, so that the counts of both add up to what came.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from uuid import uuid4

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F

from de_resources.delta.metadata import DEAD_LETTERS_OPEN
from de_resources.delta.observed_frame import MetadataByWindow, ObservedFrame
from de_resources.engine.exact_histogram import histogram, observed_counts


class DeadLetterKind(StrEnum):
    """What becomes of a dead letter."""

    RETRIED = "retried"
    """Its own line is to be read once more, as after the parser was mended."""
    REPAIRED = "repaired"
    """Another line takes its place."""
    DISCARDED = "discarded"
    """Nothing more."""


FINAL = (DeadLetterKind.REPAIRED, DeadLetterKind.DISCARDED)
"""After one of these a letter is closed."""

REPAIR_OF, ATTEMPTS, DECISION, WHY = "repair_of", "attempts", "decision", "why"
DECIDED = (REPAIR_OF, ATTEMPTS, DECISION, WHY)
"""What was decided about a line, in four columns."""
OPEN, REPLAYED, DISCARDED = "open", "replayed", "discarded"
STATUSES = (OPEN, REPLAYED, DISCARDED)
_TOLD = (DEAD_LETTERS_OPEN, "dead_letters/replayed", "dead_letters/discarded")
CLOSED = "closed by a decision; it would be understood now"
_ID_LENGTH = 16


def identify(window: datetime, payload: bytes, repair_of: str | None = None) -> str:
    """The identity of a line: its bytes and its window, or the letter that it repairs. Exact copies share it."""
    origin = repair_of or str(int(window.timestamp()))
    return hashlib.sha256(f"{origin}\n".encode() + payload).hexdigest()[:_ID_LENGTH]


def letter_id(window: str) -> Column:
    """As `identify`, of the columns `payload`, `repair_of` and `window`."""
    origin = F.coalesce(F.col(REPAIR_OF), F.unix_seconds(F.col(window)).cast("string"))
    prefix = F.encode(F.concat(origin, F.lit("\n")), "UTF-8")
    return F.substring(F.sha2(F.concat(prefix, F.col("payload").cast("binary")), 256), 1, _ID_LENGTH)


def with_decisions(lines: DataFrame, decisions: DataFrame | None, *, window: str) -> DataFrame:
    """The lines (`payload`, `source_file`, `window`) and the repaired ones, each with what was decided about it.

    The payload becomes a text, of the same bytes, which need not be UTF-8: a binary value is copied by whoever looks at it.
    Adds `DECIDED`: `repair_of` (the letter in whose place the line stands), `attempts` (replays of it), `decision` and `why`.
    `decisions` has the fields of `Decision`, `source_file` and `window`; None: nothing was decided, and nothing is joined.
    A decision about a line that is not there is without effect. A rerun gives the same rows.
    """
    own = undecided(lines.withColumn("payload", F.col("payload").cast("string")))
    if decisions is None:
        return own
    repaired = decisions.where(F.col("kind") == DeadLetterKind.REPAIRED).select(
        F.col("raw").alias("payload"),
        "source_file",
        window,
        F.col("letter_id").alias(REPAIR_OF),
        F.col("attempt").alias(ATTEMPTS),
    )
    every = own.unionByName(repaired, allowMissingColumns=True).withColumn("letter_id", letter_id(window))
    # What closes a letter outweighs that it was tried again.
    verdict = F.struct(F.col("kind").isin(*FINAL).alias("is_final"), "attempt", "kind", "why")
    verdicts = decisions.groupBy(window, "letter_id").agg(F.max(verdict).alias("verdict"))
    attempts = F.greatest(F.col(ATTEMPTS), F.coalesce(F.col("verdict.attempt"), F.lit(0)))
    told = {ATTEMPTS: attempts, DECISION: F.col("verdict.kind"), WHY: F.col("verdict.why")}
    return every.join(F.broadcast(verdicts), [window, "letter_id"], "left").withColumns(told).select(*own.columns)


def undecided(lines: DataFrame) -> DataFrame:
    """The lines as `with_decisions` gives those about which nothing was decided."""
    nothing = F.lit(None).cast("string")
    return lines.withColumns({REPAIR_OF: nothing, ATTEMPTS: F.lit(0), DECISION: nothing, WHY: nothing})


def close(parsed: DataFrame, error: str) -> DataFrame:
    """A line that was replaced or discarded stays rejected, also when the parser has learnt to read it meanwhile."""
    closed = F.col(DECISION).isin(*FINAL) & F.col(error).isNull()
    return parsed.withColumn(error, F.when(closed, F.lit(CLOSED)).otherwise(F.col(error)))


def status() -> Column:
    """Of a rejected line: `open`, `replayed` or `discarded`."""
    replayed, discarded = F.col(DECISION) == DeadLetterKind.REPAIRED, F.col(DECISION) == DeadLetterKind.DISCARDED
    return F.when(replayed, REPLAYED).when(discarded, DISCARDED).otherwise(OPEN)


def was_dead_lettered() -> Column:
    """Of a line that was understood: whether it came through a replay."""
    return F.col(REPAIR_OF).isNotNull() | F.coalesce(F.col(DECISION) == DeadLetterKind.RETRIED, F.lit(False))


def with_status_counts(letters: DataFrame, *, window: str, status: str) -> ObservedFrame:
    """The letters, which tell after the write how many of each window are in which status."""
    code = F.unix_seconds(F.col(window)) * len(STATUSES)
    for number, name in enumerate(STATUSES):
        code = code + F.when(F.col(status) == name, number).otherwise(0)
    observation = Observation(f"dead_letters_{uuid4().hex}")

    def metadata() -> MetadataByWindow:
        found = observed_counts(observation, "statuses")
        return {} if found is None else told_by_window(found)

    return ObservedFrame(letters.observe(observation, histogram(code).alias("statuses")), metadata)


def told_by_window(found: Mapping[int, int]) -> MetadataByWindow:
    """Numbers per status by window, from how many letters there are of each code."""
    told: dict[datetime | None, dict[str, int]] = {}
    for code, count in sorted(found.items()):
        seconds, number = divmod(code, len(STATUSES))
        numbers = told.setdefault(datetime.fromtimestamp(seconds, UTC), dict.fromkeys(_TOLD, 0))
        numbers[_TOLD[number]] += count
    return told
