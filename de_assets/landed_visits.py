"""What becomes of the visits that land: the way from the landing to each answer, step by step.

For `landed_rows_are_accounted_for`: what is left over of a step is lost, or counted twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import dagster as dg

from de_assets.contracts.traffic import ReferralStats
from de_assets.late_days import window_days
from de_assets.partitions import calendar_now
from de_assets.transforms.error_management.dynamic_late_data_integrator import FIRST_COPY, NOT_AHEAD, NOT_TOO_OLD
from de_checks.reconciliation import Carried, Growth, Rejoined, Step, Total, reconciliation_check
from de_resources.contract import Contract

LANDED, LETTERS = dg.AssetKey(["bronze", "visits"]), dg.AssetKey(["bronze", "visits_dead_letter"])
VALID, LATE = dg.AssetKey(["silver", "visits"]), dg.AssetKey(["silver", "visits_late"])
ENRICHED = dg.AssetKey(["silver", "visits_enriched"])
CUBE, ACTIVITY, SESSIONS, PENDING, REFERRALS = (
    dg.AssetKey(["gold", name])
    for name in ("visits_cube_daily", "user_activity", "sessions", "sessions_pending", "referral_stats")
)
REFERRAL_DAYS = window_days(Contract.of(ReferralStats))
"""For how many days after its own a day of the referrals takes late visits in: the dataset and its account go by it."""
DUPLICATES, TOO_OLD, AHEAD = "duplicates", "too old", "ahead"

# Every visit stays in the hour of its landing, or is set apart for it.
TO_VALID = Step(LANDED, VALID, apart={"late": LATE}, removed={DUPLICATES: "first_copy"})
# And what was set apart is in the hour of its event, or came too late for it, or again, or with a wrong clock.
TO_ENRICHED = Step(
    VALID,
    ENRICHED,
    removed={DUPLICATES: FIRST_COPY, TOO_OLD: NOT_TOO_OLD, AHEAD: NOT_AHEAD},
    rejoined=[Rejoined(LATE, "event_hour", before=TOO_OLD, after=AHEAD)],
)


def _not_of_a_day(landed: datetime, belongs: datetime) -> str | None:
    """Why a day of the referrals does not take in a late visit: by the days, as `integrate_late` does."""
    if belongs >= landed:
        return AHEAD
    days = (landed.date() - belongs.date()).days
    return TOO_OLD if days > REFERRAL_DAYS else None


TO_CUBE = [TO_VALID, TO_ENRICHED, Step(ENRICHED, CUBE, total=Total("visits", where={"grouping": 7}))]
TO_SESSIONS = [
    TO_VALID,
    TO_ENRICHED,
    # On the day on which the session is over; until then they are carried from day to day.
    Step(ENRICHED, SESSIONS, total=Total("visits"), carried={"pending": Carried(PENDING, "visits")}),
]
TO_ACTIVITY = [TO_VALID, TO_ENRICHED, Step(ENRICHED, ACTIVITY, total=Growth("visits"))]
# Not by the hours: each day takes its late visits in by itself, for a window of its own, and knows copies by its own key.
TO_REFERRALS = [
    TO_VALID,
    Step(
        VALID,
        REFERRALS,
        total=Total("visits"),
        removed={DUPLICATES: FIRST_COPY},
        rejoined=[Rejoined(LATE, "event_hour", before=TOO_OLD, after=AHEAD, refused=_not_of_a_day)],
    ),
]


def landed_visits_check(asset: dg.AssetsDefinition, steps: Sequence[Step]) -> dg.AssetChecksDefinition:
    """`landed_rows_are_accounted_for` of an answer that is made of landed visits."""
    return reconciliation_check(asset, steps=steps, beside={"dead": LETTERS}, now=calendar_now)
