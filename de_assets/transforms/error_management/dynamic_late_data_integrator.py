"""Dynamic Late Data Integrator: rows that came in another window than their own, taken back into their own.

Source: pattern *Dynamic Late Data Integrator*. Which windows are computed again for them is the sensor's business
(`de_assets/automation/late_data`). What a window then takes in depends on what came and when, never on when it is computed:
runs in any order, one by one or over a range, leave the same rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from de_assets.transforms.error_management.filter_interceptor import intercept
from de_assets.transforms.error_management.windowed_deduplicator import number_copies
from de_resources.delta.observed_frame import ObservedFrame
from de_resources.sql.identifiers import identifier

NOT_AHEAD, NOT_TOO_OLD, FIRST_COPY = "not_ahead", "not_too_old", "first_copy"
_COPY, _KNOWN = "__de_copy", "__de_known"


@dataclass(frozen=True)
class LateRule:
    """What of the late rows belongs to a window.

    `window` is the timestamp at which the window of a row's event begins, `landing` that of the window in which it came; both
    are windows of one length, so that their ends are as far apart as their beginnings. A row whose window was over for longer
    than `takes` when its landing window was is too old. One that came before its window has a wrong clock, and is ahead.
    `key` identifies a row; of its copies the one that came on time stays, else the earliest; `survivor` decides between equals.
    """

    window: str
    landing: str
    takes: timedelta
    key: Sequence[str]
    survivor: Sequence[str]

    def conditions(self) -> dict[str, str]:
        """What makes a late row one of its window, in this order: SQL predicates by name."""
        window, landing = identifier(self.window), identifier(self.landing)
        age = f"unix_seconds({landing}) - unix_seconds({window})"
        return {
            NOT_AHEAD: f"{window} < {landing}",
            NOT_TOO_OLD: f"{age} <= {int(self.takes.total_seconds())}",
            FIRST_COPY: f"{_COPY} = 1",
        }


def take_in_late(
    on_time: DataFrame, late: DataFrame, rule: LateRule, *, expected: Iterable[datetime] = ()
) -> ObservedFrame:
    """The rows on time, and those of the late ones that belong to their windows: each key once in a window.

    `late` has the columns of `on_time`, which has a key at most once in a window, and `landing`. Told after the write, by the
    window of the event: what each condition of the rule removed of the late rows (`intercept`); an `expected` window without
    late rows has an account of zeros.
    """
    numbered = _numbered(on_time, late, rule)
    taken = intercept(numbered, rule.conditions(), window=rule.window, expected=expected)
    columns = [F.col(identifier(name)) for name in on_time.columns]
    return taken.transform(lambda kept: on_time.unionByName(kept.select(*columns)))


def _numbered(on_time: DataFrame, late: DataFrame, rule: LateRule) -> DataFrame:
    """The late rows with the number of their copy, a row on time being the first. Of the rows on time only keys are read."""
    own = [rule.window, *rule.key]
    window, landing = F.col(identifier(rule.window)), F.col(identifier(rule.landing))
    # A copy with a wrong clock came first, and is none that could stay.
    order = [(window >= landing).asc(), landing.asc(), *(F.col(identifier(name)).asc() for name in rule.survivor)]
    numbered = number_copies(late, own, order, into=_COPY)
    keys = [F.col(identifier(name)) for name in own]
    known = on_time.select(*keys).join(late.select(*keys), own, "left_semi").withColumn(_KNOWN, F.lit(1))
    copy = F.col(_COPY) + F.coalesce(F.col(_KNOWN), F.lit(0))
    return numbered.join(known, own, "left").withColumn(_COPY, copy).drop(_KNOWN)
