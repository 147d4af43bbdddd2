"""How much of what came could not be processed? Pattern *Dead-Letter*: what is set aside must not become the rule unseen.

Both numbers of rows come from the metadata of materialisations: no engine, no table is touched.
"""

from collections.abc import Mapping

import dagster as dg

from de_checks.factory import CheckRun, check_per_key
from de_checks.per_key import Key, Materialized, Verdict, latest_materializations
from de_checks.subject import Subject, spec_of
from de_resources.delta.metadata import DEAD_LETTERS_OPEN

ACCEPT_TAG = "de/dead_letters_accepted"
"""Run tag with the reason for which a person lets the rows that were understood go on."""


def dead_letter_checks(
    valid: Subject,
    dead: Subject,
    *,
    red_above: float = 0.05,
    block_above: float = 0.5,
    at_least: int = 5,
    name: str = "dead_letters",
) -> list[dg.AssetChecksDefinition]:
    """Two checks, per partition key of `valid`, of the share of dead letters in all that came: `dead / (valid + dead)`.
    Of tables without partitions the rows count that the run brought.

    Where the materialisation of `dead` tells how many letters are still open (`dead_letters/open`), only these count: what
    was repaired is among the valid rows, and what a person discarded is no input.

    `<name>_are_few` turns red above `red_above` and holds nothing back. `<name>_do_not_prevail` turns red above
    `block_above` and is blocking: when most of the input cannot be understood, the few rows that were are no picture of
    it. Fewer than `at_least` dead letters are never red: one bad line in a quiet night is no news. Where they are all that
    came, as when an error page landed in place of an hour, the first check warns: one line cannot be told from a scanner's
    in a quiet hour, and a single record is no reason to stop a day. A partition into which nothing came passes. A person lets
    a partition go on by executing the blocking check with the run tag `de/dead_letters_accepted` and the reason as its value;
    the verdict records it.

    The two assets share their partitions and are written by the same step, dead letters first. A rerun judges the newest
    materialisations. Metadata of a verdict: `valid`, `dead`, `share`, and
    `closed` where there are such. Raises `ValueError`, at definition, unless
    `0 <= red_above <= block_above <= 1`.
    """
    if not 0 <= red_above <= block_above <= 1:
        raise ValueError(f"The limits {red_above:g} and {block_above:g} are no rising shares between 0 and 1.")
    return [
        _check(valid, dead, f"{name}_are_few", (red_above, at_least), blocking=False),
        _check(valid, dead, f"{name}_do_not_prevail", (block_above, at_least), blocking=True),
    ]


def _check(
    valid: Subject, dead: Subject, name: str, limits: tuple[float, int], *, blocking: bool
) -> dg.AssetChecksDefinition:
    letters = spec_of(dead).key

    def judge(run: CheckRun, materialized: Mapping[Key, Materialized]) -> Mapping[Key, Verdict]:
        apart = latest_materializations(run.instance, letters, list(materialized))
        reason = run.tags.get(ACCEPT_TAG) if blocking else None
        verdicts = {key: compare(current, apart.get(key), limits, reason) for key, current in materialized.items()}
        if blocking:
            return verdicts
        return {key: noted_when_nothing_was_understood(verdict) for key, verdict in verdicts.items()}

    return check_per_key(
        valid,
        name,
        judge,
        description=f"At most {limits[0]:.0%} of what came is in `{letters.to_user_string()}`.",
        patterns=["dead_letter"],
        blocking=blocking,
    )


def nothing_was_understood(valid: Materialized | None, dead: Materialized | None) -> bool:
    """Whether what came to a partition are dead letters, and nothing else."""
    return bool(valid and dead and valid.rows_of_run == 0 and dead.rows_of_run)


def noted_when_nothing_was_understood(verdict: Verdict) -> Verdict:
    """A warning where the few letters are all that came: an hour of one bad line, or an error page in its place."""
    if not verdict.passed or verdict.metadata.get("valid") or not verdict.metadata.get("dead"):
        return verdict
    told = f"Nothing of what came was understood: {verdict.description}"
    return Verdict(False, told, verdict.metadata, severity=dg.AssetCheckSeverity.WARN)


def compare(
    valid: Materialized, dead: Materialized | None, limits: tuple[float, int], accepted: str | None = None
) -> Verdict:
    """The verdict on one partition. `limits`: the accepted share, and the number of dead letters from which it counts;
    `accepted` is a person's reason to let it pass."""
    limit, at_least = limits
    apart = None if dead is None else dead.rows_of_run
    if dead is None or apart is None or valid.rows_of_run is None:
        return Verdict(
            False,
            "The materialisations do not say how many rows were understood and how many were not. Materialise both again.",
            severity=dg.AssetCheckSeverity.WARN,
        )
    waiting = int(dead.metadata.get(DEAD_LETTERS_OPEN, apart))
    total = valid.rows_of_run + waiting
    share = waiting / total if total else 0.0
    figures: dict[str, object] = {"valid": valid.rows_of_run, "dead": waiting, "share": round(share, 6)}
    told = f"{waiting:,} of {total:,} records are dead letters ({share:.1%})"
    if waiting < apart:
        figures["closed"] = apart - waiting
        told += f", {apart - waiting:,} more are replayed or discarded"
    if share <= limit or waiting < at_least:
        return Verdict(True, f"{told}.", figures)
    return Verdict(False, f"{told}, more than the accepted {limit:.0%}.", figures).accepted_for(accepted)
