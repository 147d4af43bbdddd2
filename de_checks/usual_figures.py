"""Are the figures that a write has measured those that it usually has? Pattern *Online Observer*, judged by its own history.

The figures are in the metadata of the materialisations (`OnlineObserver`): no engine, no table is touched.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg

from de_checks.factory import CheckRun, check_per_key, key_by_key
from de_checks.history import good_before
from de_checks.per_key import Key, Materialized, Verdict
from de_checks.subject import Subject
from de_resources.observers.bounds import LEAST_POINTS
from de_resources.observers.drift import is_usual, usual_bounds
from de_resources.observers.figures_shown import PREFIX
from de_resources.observers.measures import ROWS

ACCEPT_TAG = "de/figures_accepted"
"""Run tag with the reason for which a person takes the figures of a partition for usual."""

FIGURES = "figures"

History = Sequence[tuple[str, Mapping[str, float]]]
"""Accepted earlier partitions and their figures, oldest first."""


def usual_figures_check(
    asset: Subject, figures: Sequence[str], *, blocking: bool = False, name: str = "figures_are_usual"
) -> dg.AssetChecksDefinition:
    """A check, per partition key, that figures of its columns lie where those of the accepted partitions before it lie.

    `figures` are named as the observer tells them, without `observer/`: `rows`, `amount/median`, `page/nulls`. Each is held
    against mean and three standard deviations of its values in up to 28 partitions before that this check found good: those
    of the same weekday and hour where there are seven, else all. While there are few of a weekday, a value like theirs is usual
    as well. With fewer than seven it passes and says so. A bad partition is thus never the measure of the next.

    What is unusual is a warning: it may be true. When the level did change for good, a person says so once: re-execute the
    check with the run tag `de/figures_accepted` and the reason.

    A rerun compares with the same history. Metadata of a verdict: `figures`, and `outside`, how many are unusual.
    """

    def judge(run: CheckRun, key: Key, current: Materialized) -> Verdict:
        good = good_before(run, key, current, "last")
        history = [(earlier or "", told[FIGURES]) for earlier, told in good if told.get(FIGURES)]
        verdict = compare(key or "", _told(current, figures), history[::-1])
        return verdict.accepted_for(run.tags.get(ACCEPT_TAG))

    return check_per_key(
        asset,
        name,
        key_by_key(judge),
        description=f"Within three standard deviations of its own accepted history: {', '.join(figures)}.",
        patterns=["online_observer"],
        blocking=blocking,
    )


def compare(key: str, current: Mapping[str, float], history: History) -> Verdict:
    """The verdict on the figures of one partition."""
    if not current:
        return Verdict(True, "The write did not measure this partition by itself.")
    known: dict[str, Any] = {FIGURES: dict(current), "outside": 0}
    if len(history) < LEAST_POINTS:
        return Verdict(
            True, f"Still learning: {len(history)} accepted partitions before, {LEAST_POINTS} needed.", known
        )
    told = []
    for figure, value in current.items():
        series = [(earlier, figures[figure]) for earlier, figures in history if figure in figures]
        usual, like_its_season = usual_bounds(figure, int(current.get(ROWS, 0)), key, series)
        if usual and not is_usual(value, usual, like_its_season):
            told.append(f"`{figure}` is {value:,.6g}, usually {usual.low:,.6g} to {usual.high:,.6g}")
    if not told:
        return Verdict(True, f"{len(current)} figures are what they usually are.", known)
    return Verdict(False, f"{'; '.join(told)}.", {**known, "outside": len(told)}, dg.AssetCheckSeverity.WARN)


def _told(current: Materialized, figures: Sequence[str]) -> dict[str, float]:
    known = {figure: current.metadata.get(f"{PREFIX}/{figure}") for figure in figures}
    return {figure: float(value) for figure, value in known.items() if isinstance(value, int | float)}
