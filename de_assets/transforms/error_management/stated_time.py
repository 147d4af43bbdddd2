"""Times that a text states itself: the same text is the same moment, whatever the day on which it is read."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from de_resources.moments import EARLIEST, LATEST


def stated_time(text: Column) -> Column:
    """The moment of a text that begins with a date (`2024-10-10…`), else null; without a zone it is in the session's.

    Spark reads `10:05` as today's, and `2024` as its first day.
    """
    has_date = (F.substring(text, 5, 1) == "-") & (F.substring(text, 8, 1) == "-")
    return F.when(has_date, _with_seconds(text).try_cast("timestamp"))


def _with_seconds(text: Column) -> Column:
    """ISO 8601 lets seconds out (`2026-01-05T10:05+01:00`), and Spark reads a zone behind seconds only."""
    # Where the text ends there, its seconds are let out too.
    has_none = (F.substring(text, 14, 1) == ":") & F.lit("Z+- ").contains(F.substring(text, 17, 1))
    completed = F.concat(F.substring(text, 1, 16), F.lit(":00"), F.substr(text, F.lit(17)))
    return F.when(has_none, completed).otherwise(text)


def conceivable(moment: Column) -> Column:
    """Whether a moment is one that every reader of a table can hold; null for null."""
    earliest, latest = (F.lit(end.isoformat()).cast("timestamp") for end in (EARLIEST, LATEST))
    return (moment >= earliest) & (moment < latest)


def conceivable_time(text: Column) -> Column:
    """The moment that a text states, where it is conceivable, else null."""
    moment = stated_time(text)
    return F.when(conceivable(moment), moment)
