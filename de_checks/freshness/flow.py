"""Does data still flow, part by part? One judgement for every layer in which a flow leaves signs.

The promise says what is owed: a record in each unit of the clock, or one before a longest silence is over (`Freshness` of the
dataset's contract). A layer says what came last. What lies between is the same for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Literal

import dagster as dg

from de_checks.factory import CheckRun, check_of_asset
from de_checks.freshness.clock import Clock, duration, utc_now
from de_checks.freshness.signs import WHOLE, Layer, Sign, Signs
from de_checks.per_key import PastVerdict, judged_before
from de_checks.subject import Subject, spec_of
from de_resources.contract import Contract
from de_resources.contract.freshness import Freshness
from de_resources.errors import PermanentError

NAMED = 5
CLOCK_SKEW = timedelta(minutes=5)
"""How far another clock may be ahead of this one."""

LAST_GOOD, AGE, EXPECTED_BY, OVERDUE = "last_good", "age_seconds", "expected_by", "overdue_seconds"
STATE, SILENT, SILENT_PARTS, PARTS = "state", "silent", "silent_parts", "parts"

Ends = Callable[[], datetime | None]
"""When a flow ends for good, as a closed calendar does; None: it goes on."""


IfNothing = Literal["not_begun", "warns", "ended"]
"""What it means that there is no sign at all."""


class FlowState(StrEnum):
    """Where a flow stands, against what this check found the last time."""

    FLOWING = "flowing"
    OPENED = "opened"
    """It stopped since the last verdict: the one evaluation to be told."""
    SILENT = "silent"
    """It still does not flow."""
    RECOVERED = "recovered"
    NOT_BEGUN = "not_begun"
    """Nothing ever came."""
    ABSENT = "absent"
    """There is no such source in this installation."""


class NoPromise(PermanentError):
    """A flow of which nobody says how soon it comes."""

    def __init__(self, asset: dg.AssetKey) -> None:
        self.asset = asset
        super().__init__(
            f"The contract of `{asset.to_user_string()}` has no `freshness`. Write there how soon its data comes, or hand over "
            "the promise of the dataset that does."
        )


@dataclass(frozen=True)
class Flow:
    """How the parts of a flow stand at a moment."""

    moment: datetime
    signs: Signs
    due: Mapping[str, datetime] = field(default_factory=dict)
    """By part that ever flowed: when its next record was expected."""

    @property
    def silent(self) -> list[str]:
        """The parts that are overdue, the longest one first."""
        return sorted((part for part, due in self.due.items() if due < self.moment), key=lambda part: self.due[part])

    @property
    def last_good(self) -> datetime | None:
        """Until then all parts flowed."""
        known = (self.signs[part].good_until for part in self.due)
        return min((at for at in known if at is not None), default=None)


def stand_of(signs: Signs, promise: Freshness, moment: datetime) -> Flow:
    """What is overdue at `moment`. A part that never flowed owes nothing as long as others do."""
    known = {part: sign.good_until for part, sign in signs.items()}
    return Flow(moment, signs, {part: promise.expected_by(at) for part, at in known.items() if at is not None})


def flow_check(
    asset: Subject,
    layer: Layer,
    *,
    name: str,
    promise: Freshness | None = None,
    ends: Ends = lambda: None,
    if_nothing: IfNothing = "not_begun",
    clock_skew: timedelta = CLOCK_SKEW,
    blocking: bool = False,
    now: Clock = utc_now,
) -> dg.AssetChecksDefinition:
    """A check of the whole asset: by this layer, no part of the flow is silent for longer than its promise allows.

    The promise is the contract's; an asset without one, such as a system outside, is handed that of the dataset which reads it.
    After `ends` nothing is owed. A sign more than `clock_skew` ahead of the clock is not believed, and counted. What never
    brought anything has not begun: that passes and says so, or warns, as `if_nothing` says. A source that had brought something
    and of which nothing is left fails, unless that means that it has `ended` in order.

    The check belongs to a watch (`de_assets.automation.triggers.watch`): nothing runs when a flow stops. Metadata, in seconds
    and times that are plotted: `age_seconds`, `overdue_seconds`, `last_good`, `expected_by`, `parts`, `silent_parts`, and by
    name `silent`; `layer`, and `state` (`FlowState`). A rerun judges again. Raises `NoPromise` at definition.
    """
    subject = spec_of(asset)
    owed = promise or promised(subject)

    def judge(run: CheckRun) -> dg.AssetCheckResult:
        present, end = now(), ends()
        signs = layer.signs(run, present + clock_skew)
        flow = stand_of(signs or {}, owed, min(present, end) if end else present)
        figures = {"layer": layer.name, **layer.figures(flow.signs), **_ahead(flow.signs)}
        if not flow.due:
            before = last_verdict(run)
            good = before.metadata.get(LAST_GOOD) if before and if_nothing != "ended" else None
            return _nothing(layer, figures, good, absent=signs is None, warns=if_nothing == "warns")
        return _result(flow, layer, figures, run)

    return check_of_asset(
        asset,
        name,
        judge,
        description=f"By {layer.sees}, {describe(owed)}.",
        patterns=["flow_interruption_detector"],
        blocking=blocking,
        resources=layer.resources,
        standing=True,
    )


def describe(promise: Freshness) -> str:
    """The promise in words."""
    late = f", at most {duration(promise.delay.total_seconds())} late" if promise.delay else ""
    length = duration(promise.length.total_seconds())
    return (
        f"every {length} brings something{late}"
        if promise.every
        else f"nothing is silent for longer than {length}{late}"
    )


def promised(asset: dg.AssetSpec) -> Freshness:
    """What the contract of the asset promises. Raises `NoPromise`."""
    path = asset.metadata.get("contract")
    found = Contract.load(path).freshness if path else None
    if found is None:
        raise NoPromise(asset.key)
    return found


def state_of(run: CheckRun, *, passed: bool) -> FlowState:
    """Where a flow stands that passes, or does not, against the last recorded verdict."""
    before = last_verdict(run)
    was_silent = before is not None and not before.passed
    if passed:
        return FlowState.RECOVERED if was_silent else FlowState.FLOWING
    return FlowState.SILENT if was_silent else FlowState.OPENED


def last_verdict(run: CheckRun) -> PastVerdict | None:
    """What this check found the last time, whatever run it was in."""
    return next(iter(judged_before(run.instance, run.check.key, None, limit=1)), None)


def _result(flow: Flow, layer: Layer, figures: Mapping[str, Any], run: CheckRun) -> dg.AssetCheckResult:
    silent, good, due = flow.silent, flow.last_good, min(flow.due.values())
    assert good is not None  # noqa: S101 - a part that is due has flowed
    passed = not silent
    # A sign within the tolerance of clocks may lie ahead of this one: nothing is younger than now.
    age, overdue = (max(0.0, (flow.moment - then).total_seconds()) for then in (good, due))
    told = f"By {layer.sees}, all flows until {_text(good)}, {duration(age)} ago; "
    told += f"the next sign is expected by {_text(due)}." if passed else f"the next sign was expected by {_text(due)}."
    if not passed and silent != [WHOLE]:
        more = f" and {len(silent) - NAMED:,} more" if len(silent) > NAMED else ""
        told += f" {len(silent):,} of {len(flow.due):,} parts are silent: {', '.join(silent[:NAMED])}{more}."
    return dg.AssetCheckResult(
        passed=passed,
        description=told + _warning(figures),
        metadata={
            **figures,
            STATE: str(state_of(run, passed=passed)),
            LAST_GOOD: dg.MetadataValue.timestamp(good),
            AGE: round(age, 3),
            EXPECTED_BY: dg.MetadataValue.timestamp(due),
            OVERDUE: round(overdue, 3),
            PARTS: len(flow.signs),
            SILENT_PARTS: len(silent),
            SILENT: dg.MetadataValue.json(silent[:NAMED]),
        },
    )


def _nothing(
    layer: Layer, figures: Mapping[str, Any], good: float | None, *, absent: bool, warns: bool
) -> dg.AssetCheckResult:
    """There is no sign to judge by: it is gone, not here at all, or has not begun."""
    if good is not None:
        last = datetime.fromtimestamp(good, UTC)
        return dg.AssetCheckResult(
            passed=False,
            description=f"Of {layer.sees} nothing is left; all flowed until {_text(last)}.{_warning(figures)}",
            metadata={**figures, STATE: str(FlowState.SILENT), LAST_GOOD: dg.MetadataValue.timestamp(last)},
        )
    told = "There is no such source here: nothing is expected of it." if absent else "Nothing came yet."
    return dg.AssetCheckResult(
        # A sign of the future is a wrong clock, and no beginning.
        passed=absent or not (warns or figures["ahead"]),
        severity=dg.AssetCheckSeverity.WARN,
        description=f"By {layer.sees}: {told}{_warning(figures)}",
        metadata={**figures, STATE: str(FlowState.ABSENT if absent else FlowState.NOT_BEGUN)},
    )


def _ahead(signs: Signs) -> dict[str, Any]:
    furthest = max((sign.furthest for sign in signs.values() if sign.furthest), default=None)
    count = sum(sign.ahead for sign in signs.values())
    return {"ahead": count} | ({"furthest_ahead": dg.MetadataValue.timestamp(furthest)} if furthest else {})


def _warning(figures: Mapping[str, Any]) -> str:
    ahead = figures["ahead"]
    return f" {ahead:,} sign(s) lie in the future and do not count: a clock is wrong." if ahead else ""


def _text(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def whole(at: datetime | None, **more: Any) -> dict[str, Sign]:
    """The sign of a flow without parts."""
    return {WHOLE: Sign(at, **more)}
