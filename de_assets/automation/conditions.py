"""The named automation conditions of the graph.

`AutomationCondition.eager()` alone is never used: it looks at the latest partition only, so that late data is never
integrated, and it does not wait for blocking checks, so that a bad partition flows on. Nor are those of Dagster's
ready-made parts used that err on partitions:

- `all_deps_blocking_checks_passed()` is content when *one* of the upstream partitions passed: a day with one bad hour
  would be computed. Here no upstream partition may have a blocking check that has not passed.
- `any_deps_updated()` overlooks an upstream that was written by a run which meant to write the downstream too and
  then skipped it, as a range run does for the keys that a gate holds back.
- With `since_last_handled()` an upstream that is rewritten while the downstream is being computed is forgotten as soon
  as that run ends.

A run that fails is not requested again, because nothing changed: it is reported by the sensor `alerts`, crashed workers
are retried by the instance, and the next change upstream starts the partition again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import dagster as dg

from de_resources.promises import Needs

if TYPE_CHECKING:
    from de_resources.compat.graph import BuiltinAutomationCondition

    Condition = BuiltinAutomationCondition[Any]

_AC = dg.AutomationCondition

PATIENCE = "30 3-21/6 * * *"
"""When what nobody brought is no longer awaited: no sooner than hours after midnight, when a day's last hour may be landing."""
_INGESTED = dg.AssetSelection.tag("pattern/incremental_loader", "").roots()
"""What is loaded hour by hour from outside: whether a missing partition of it will ever come, nobody in the graph knows."""
_STEPS = 4
"""How many steps up a missing partition is followed to what is missing outside."""


def gated(
    reference: dg.AssetSelection | None = None,
    *,
    there: dg.AssetSelection | None = None,
    carried: dg.AssetSelection | None = None,
    needs: Needs | None = None,
) -> Condition:
    """Request what an upstream change made outdated, once every upstream partition is there and passed its gates.

    Several changes before an evaluation make one request. A partition that a check holds back is requested when the
    check passes on what is there by then. A partition that was never computed, though its upstreams are there, is
    requested too: turning automation on catches up. `reference` names upstreams that are looked up but neither awaited
    nor followed: a changed user must not request every hour that ever was. `there` names those of them that have to exist.

    An upstream partition that no source brought is awaited until a tick of `PATIENCE` passed without news upstream. Then it
    is done without, as `de run` does without it; when it comes after all, that is a change as any other. One that is
    missing because a step failed or a check holds it back is awaited for as long as it takes.

    `carried` names upstreams that carry something from one partition to the next. They are always awaited, and where nothing
    else comes, they are enough: after the quiet time a day without a single hour is done, so that what they carry goes on.

    `needs` are the gates that hold it back, of upstreams of which it does not need all: what its metadata says
    (`de_resources/promises.py`).
    """

    def any_upstream(condition: Condition) -> Condition:
        return _any_upstream(condition, reference)

    rewritten = any_upstream(_AC.newly_updated())
    rewritten_apart = any_upstream(_AC.newly_updated() & ~_AC.executed_with_root_target())
    # Two latches, for only a latch with one trigger and one reset compares their times within one evaluation.
    outdated = rewritten.since(_AC.newly_updated()) & rewritten.since(_AC.newly_requested())
    never_computed = _AC.newly_missing().since(_AC.newly_requested() | _AC.newly_updated())
    wanted = (
        outdated.with_label("outdated")
        | never_computed.with_label("never_computed")
        | _overtaken(rewritten_apart).with_label("overtaken")
    )
    return (
        wanted & _upstream_is_ready(reference, there=there, carried=carried, needs=needs) & ~_AC.in_progress()
    ).with_label("gated")


def late_cascade(
    reference: dg.AssetSelection | None = None,
    *,
    carried: dg.AssetSelection | None = None,
    needs: Needs | None = None,
) -> Condition:
    """`gated` for partitioned datasets: every partition counts, however old, so that late hours flow to the end.

    What a changed hour means for a day is the partition mapping's business.
    """
    return gated(reference, carried=carried, needs=needs).with_label("late_cascade")


def computed_once(*, carried: dg.AssetSelection | None = None) -> Condition:
    """For partitions that do not change once their time is over: request those that are missing, however old, never again.

    As with `gated`, what is upstream has to be there and to have passed its gates, and `carried` names what carries something
    from one partition to the next. Where that was computed anew, what is still missing behind it is requested again: it may
    have failed for want of it. What a correction upstream changes in old partitions is for somebody else to decide on.
    """
    never_computed: Condition = _AC.newly_missing()
    if carried is not None:
        never_computed = never_computed | (_AC.missing() & _AC.any_deps_match(_AC.newly_updated()).allow(carried))
    wanted = never_computed.since(_AC.newly_requested() | _AC.newly_updated()).with_label("never_computed")
    return (wanted & _upstream_is_ready(carried=carried) & ~_AC.in_progress()).with_label("computed_once")


def _any_upstream(condition: Condition, reference: dg.AssetSelection | None) -> Condition:
    matched = _AC.any_deps_match(condition)
    return matched.ignore(reference) if reference is not None else matched


def _upstream_is_ready(
    reference: dg.AssetSelection | None = None,
    *,
    there: dg.AssetSelection | None = None,
    carried: dg.AssetSelection | None = None,
    needs: Needs | None = None,
) -> Condition:
    """Every upstream partition is there or done without, none is about to be written, and none is held back by a gate."""
    ungated = _not_passed(reference, needs or {})
    # Never in the run that writes the upstream: what its gates will say is not known when it is requested.
    absent = _any_upstream(_AC.missing(), reference) & ~_done_without(reference, carried)
    unsettled = absent | _any_upstream(_AC.in_progress() | _AC.will_be_requested(), reference)
    if there is not None:
        unsettled = unsettled | _AC.any_deps_match(_AC.missing()).allow(there)
    return ~unsettled.with_label("upstream_unsettled") & ~ungated.with_label("upstream_not_passed")


def _not_passed(reference: dg.AssetSelection | None, needs: Needs) -> Condition:
    """Some upstream partition has not passed a gate that is needed. What is not there has passed nothing: others judge it."""
    passed = _AC.all_checks_match(_AC.check_passed(), blocking_only=True)
    chosen = {dg.AssetKey.from_user_string(name): names for name, names in needs.items()}
    if not chosen:
        return _any_upstream(~_AC.missing() & ~passed, reference)
    ignored = dg.AssetSelection.assets(*chosen)
    found = _any_upstream(~_AC.missing() & ~passed, ignored if reference is None else reference | ignored)
    for key, names in chosen.items():
        own = passed.allow(dg.AssetSelection.checks(*(dg.AssetCheckKey(key, name) for name in names)))
        found = found | _AC.any_deps_match(~_AC.missing() & ~own).allow(dg.AssetSelection.assets(key))
    return found


def _done_without(reference: dg.AssetSelection | None, carried: dg.AssetSelection | None) -> Condition:
    """Nothing came for long, something of each upstream is there, and what is missing is missing at its source."""
    looked_up = reference if reference is not None else dg.AssetSelection.assets()
    news = _AC.any_deps_match(_AC.newly_updated()).ignore(looked_up if carried is None else looked_up | carried)
    quiet = _AC.cron_tick_passed(PATIENCE).since(news)
    some_of_each: Condition = _AC.all_deps_match(~_AC.missing()).ignore(looked_up)
    if carried is not None:
        # Not some of it: to the first partition nothing is carried.
        some_of_each = ~_AC.any_deps_match(_AC.missing()).allow(carried)
    not_computed = _AC.any_deps_match(_AC.missing() & ~_never_brought(_STEPS)).ignore(_INGESTED | looked_up)
    return (quiet & some_of_each & ~not_computed).with_label("done_without")


def _never_brought(steps: int) -> Condition:
    """Missing, because something that it is computed from was never brought by its source."""
    above = _AC.any_deps_match(_AC.missing()).allow(_INGESTED)
    return _AC.missing() & (above if steps == 1 else above | _AC.any_deps_match(_never_brought(steps - 1)))


def _overtaken(rewritten: Condition) -> Condition:
    """The upstream changed while the partition was requested or computed: that run may have read the old state.

    A run too many is harmless, a forgotten change is not. The request itself ends it, unless the upstream changes yet
    again. Not seen is a change during a run that somebody else started and that fits between two evaluations.
    """
    meanwhile = rewritten & (_AC.newly_requested() | _AC.run_in_progress())
    return meanwhile.since(_AC.newly_requested() & ~meanwhile)
