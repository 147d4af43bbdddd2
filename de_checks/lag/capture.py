"""How far is the capture of a database behind its log?"""

from __future__ import annotations

from datetime import datetime, timedelta

import dagster as dg

from de_checks.factory import CheckRun, check_of_asset
from de_checks.freshness.clock import Clock, duration, utc_now
from de_checks.lag.judgement import MEASURED_AT, STARTED, Earlier
from de_checks.lag.past import measured_before, result, unknown
from de_checks.per_key import Verdict
from de_checks.subject import Subject
from de_resources.capture import CaptureSource
from de_resources.capture.lag import SlotLag, slot_lag
from de_resources.local.endpoints import ServiceUnavailable

NEWEST, CONFIRMED = "lag/newest_lsn", "lag/confirmed_lsn"


def capture_lag_check(
    asset: Subject, source: CaptureSource, *, at_most: timedelta = timedelta(minutes=30), now: Clock = utc_now
) -> dg.AssetChecksDefinition:
    """A check that the capture has confirmed what the database's log had `at_most` ago.

    The age of a lag is told by earlier measurements: since when there is log that is not confirmed yet. Where the server limits
    what it keeps for a slot, and the room that is left is used up at the speed of these measurements, that is an
    error with the time left. One question to the database. Needs the resource `database`. Metadata: `lag/bytes_max`,
    `lag/seconds_max`, `lag/started`, and `lag/room_bytes` and `lag/lost_in_seconds` where there is a limit.
    """

    def judge(run: CheckRun) -> dg.AssetCheckResult:
        try:
            found = slot_lag(run.resources.database, source)
        except ServiceUnavailable as away:
            return unknown(str(away))
        verdict = judge_slot(found, source, at_most, now(), measured_before(run))
        return result(verdict.passed, verdict.severity, verdict.description, verdict.metadata)

    return check_of_asset(
        asset,
        "capture_keeps_up",
        judge,
        description=f"The capture `{source.name}` has relayed what the database committed more than "
        f"{duration(at_most.total_seconds())} ago.",
        patterns=["lag_detector"],
        resources=["database"],
    )


def judge_slot(
    lag: SlotLag | None, source: CaptureSource, at_most: timedelta, now: datetime, earlier: Earlier
) -> Verdict:
    """The verdict on one measurement, from those before it, newest first."""
    if lag is None:
        return Verdict(
            False,
            f"It has not started: there is no slot `{source.slot}`, and no change is kept for it. Run `de up`.",
            {STARTED: False},
            dg.AssetCheckSeverity.WARN,
        )
    before = [
        told for told in earlier if told.get(STARTED) and told.get(MEASURED_AT, now.timestamp()) < now.timestamp()
    ]
    behind = max(lag.unread, 0)
    # The oldest measurement at which there was log already that is not confirmed now, without one in between that was.
    since = now.timestamp()
    for told in before:
        if told[NEWEST] <= (lag.confirmed or 0):
            break
        since = told[MEASURED_AT]
    age = now.timestamp() - since
    figures = {
        STARTED: True,
        "lag/bytes_max": behind,
        "lag/seconds_max": age,
        NEWEST: lag.newest,
        CONFIRMED: lag.confirmed or 0,
        MEASURED_AT: now.timestamp(),
        **({"lag/room_bytes": lag.room} if lag.room is not None else {}),
    }
    if lag.is_lost:
        return Verdict(False, f"The slot `{source.slot}` was given up by the server: changes are missing.", figures)
    if lag.unread < 0:
        return Verdict(
            False, f"The slot `{source.slot}` is ahead of the database, which was put back to an older copy.", figures
        )
    if age <= at_most.total_seconds():
        return Verdict(True, f"{behind:,} bytes of log are not confirmed.", figures)
    late = f"{behind:,} bytes of log are not confirmed, and some have not been for {duration(age)}"
    lost = _lost(lag, now, before)
    if lost is None:
        return Verdict(False, f"{late}.", figures, dg.AssetCheckSeverity.WARN)
    return Verdict(
        False,
        f"{late}; as the log grows now, the server gives the slot up in {duration(lost)}.",
        {**figures, "lag/lost_in_seconds": lost},
    )


def _lost(lag: SlotLag, now: datetime, before: Earlier) -> float | None:
    """Seconds until the slot has no room, as fast as its lag grew since the oldest measurement; None where it does not grow."""
    if lag.room is None or not before:
        return None
    oldest = before[-1]
    seconds = now.timestamp() - oldest[MEASURED_AT]
    grown = max(lag.unread, 0) - max(oldest[NEWEST] - oldest[CONFIRMED], 0)
    return max(lag.room, 0) / (grown / seconds) if grown > 0 else None
