"""Does each condition of a filter remove about what it always removed? Pattern *Filter Interceptor*.

A filter that suddenly removes everything, or nothing any more, leaves rows that look fine. Its account is in the metadata
of the materialisations (`intercept`): no engine, no table is touched.
"""

from collections.abc import Mapping
from itertools import islice
from statistics import median
from typing import Any

import dagster as dg

from de_checks.baselines import Season
from de_checks.factory import CheckRun, check_per_key, key_by_key
from de_checks.history import good_before
from de_checks.per_key import Key, Materialized, Verdict
from de_checks.shares import SHARES, Shares, rounded
from de_checks.subject import Subject
from de_resources.delta.metadata import FILTER_CONDITIONS, FILTER_ROWS_IN


def filter_check(
    asset: Subject,
    *,
    tolerance: float = 0.1,
    against: Season = "last",
    history: int = 7,
    blocking: bool = False,
    name: str = "filter_shares_are_stable",
) -> dg.AssetChecksDefinition:
    """A check, per partition key, that no condition's share of removed rows differs from its own history.

    A share is what the condition removed as the first in order, of all rows that came in. It is compared with the median
    of its shares in up to `history` earlier partitions (`against`: just before, or the same weekday and hour) that were
    judged good; `tolerance` is the accepted absolute difference: 0.1 are ten of a hundred rows, in either direction.
    Without history, for a new condition, and for a partition into which nothing came, it passes and says so. A
    materialisation without an account fails with severity WARN.

    A rerun compares with the same history, never with the judged partition itself. Metadata of a verdict: `shares`, and
    where compared `usual_shares`. Raises `ValueError` for a tolerance outside (0, 1), at definition.
    """
    if not 0 < tolerance < 1:
        raise ValueError(f"The tolerance {tolerance} is no difference of shares: it lies between 0 and 1.")

    def judge(run: CheckRun, key: Key, current: Materialized) -> Verdict:
        good = good_before(run, key, current, against)
        earlier = list(islice((figures[SHARES] for _, figures in good if figures[SHARES]), history))
        return compare(shares(current.metadata), earlier, tolerance)

    return check_per_key(
        asset,
        name,
        key_by_key(judge),
        description=f"Each condition removes its usual share of the rows, give or take {tolerance:.0%} of all.",
        patterns=["filter_interceptor"],
        blocking=blocking,
    )


def shares(metadata: Mapping[str, Any]) -> Shares | None:
    """The shares of a materialisation; empty where no row came, None where it has no account."""
    if FILTER_ROWS_IN not in metadata or FILTER_CONDITIONS not in metadata:
        return None
    rows = int(metadata[FILTER_ROWS_IN])
    return {c: removed["first"] / rows for c, removed in metadata[FILTER_CONDITIONS].items()} if rows else {}


def compare(current: Shares | None, earlier: list[Shares], tolerance: float) -> Verdict:
    """The verdict on the shares of one partition, by condition against the median of those before."""
    if current is None:
        return Verdict(
            False,
            "The materialisation does not say what its filter removed. Materialise the partition again.",
            severity=dg.AssetCheckSeverity.WARN,
        )
    if not current:
        return Verdict(True, "No row came in, so that none was removed.", {SHARES: {}})
    usual = {c: median(known) for c in current if (known := [e[c] for e in earlier if c in e])}
    figures: dict[str, Any] = {SHARES: rounded(current)}
    if not usual:
        return Verdict(True, "There is no good earlier partition to compare with.", figures)
    figures["usual_shares"] = rounded(usual)
    odd = [c for c, share in usual.items() if abs(current[c] - share) > tolerance]
    told = "; ".join(f"`{c}` removed {current[c]:.1%}, usually {usual[c]:.1%}" for c in odd or usual)
    if not odd:
        return Verdict(True, f"{told}.", figures)
    return Verdict(False, f"{told}: more than {tolerance:.0%} of the rows apart.", figures)
