"""Was everything there that a partition is made of? Guard of both fan-ins: it warns, and says what is missing."""

from collections.abc import Mapping

import dagster as dg

from de_checks.factory import CheckRun, check_per_key, key_by_key
from de_checks.per_key import Key, Materialized, Verdict
from de_checks.subject import Subject
from de_resources.fan_in import COMPLETENESS, LACKING, MISSING

_NAMED = 5


def fan_in_check(
    asset: Subject, *, name: str = "inputs_are_complete", pattern: str = "unaligned_fan_in"
) -> dg.AssetChecksDefinition:
    """A check of each partition by what its write has told (`FanIn.told`): a warning while an input is missing, or lacks some.

    Reads nothing. Metadata: `completeness`; `missing_inputs`, each with why; `approximate_inputs`, each with what it was made
    without. A write that told nothing is an error.
    """

    def judge(_run: CheckRun, _key: Key, current: Materialized) -> Verdict:
        told = current.metadata.get(COMPLETENESS)
        if told is None:
            return Verdict(False, "The write did not say how complete its inputs were.")
        completeness, missing = float(told), dict(current.metadata.get(MISSING) or {})
        lacking = dict(current.metadata.get(LACKING) or {})
        figures = {
            COMPLETENESS: completeness,
            MISSING: dg.MetadataValue.json(missing),
            LACKING: dg.MetadataValue.json(lacking),
        }
        if not missing and not lacking:
            return Verdict(True, "Every input was there.", figures)
        said = [
            *([f"Missing: {_named(missing)}."] if missing else []),
            *(f"{key} was made without {_named(lacks)}." for key, lacks in list(lacking.items())[:_NAMED]),
        ]
        return Verdict(
            False,
            f"Approximate, of {completeness:.0%} of its inputs. {' '.join(said)} It is computed again when they come.",
            figures,
            dg.AssetCheckSeverity.WARN,
        )

    return check_per_key(
        asset,
        name,
        key_by_key(judge),
        description="All partitions were there that the partition is made of; it is no approximation.",
        patterns=[pattern],
    )


def _named(why: Mapping[str, str]) -> str:
    more = f" and {len(why) - _NAMED} more" if len(why) > _NAMED else ""
    return ", ".join(f"{key} ({reason})" for key, reason in list(why.items())[:_NAMED]) + more
