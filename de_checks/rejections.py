"""Did the source send rows that nobody can keep? The account of the filter that leaves them out says how many."""

from collections.abc import Mapping
from typing import Any

import dagster as dg

from de_checks.factory import CheckRun, check_per_key, key_by_key
from de_checks.per_key import Key, Materialized, Verdict
from de_checks.subject import Subject
from de_resources.delta.metadata import FILTER_CONDITIONS

ACCEPT_TAG = "de/rejections_accepted"
"""Run tag with the reason for which a person does without the rejected rows."""


def rejection_check(asset: Subject, *, name: str = "no_row_was_rejected") -> dg.AssetChecksDefinition:
    """A check, per partition key, which warns where a condition of the asset's filter removed any row. It holds nothing back.

    For filters whose conditions every row of a sound source meets (`intercept`); for others there is `filter_check`. Reads
    the metadata of materialisations: no engine, no table is touched. Metadata of a verdict: `rejected`, rows by condition. A
    person passes it by executing the check with the run tag `de/rejections_accepted` and the reason as its value. Once the
    source is mended and the partition materialised again, it passes.
    """

    def judge(run: CheckRun, _key: Key, current: Materialized) -> Verdict:
        return judged(current.metadata).accepted_for(run.tags.get(ACCEPT_TAG))

    return check_per_key(
        asset,
        name,
        key_by_key(judge),
        description="Every row of the source could be kept.",
        patterns=["filter_interceptor"],
    )


def judged(metadata: Mapping[str, Any]) -> Verdict:
    """The verdict on one materialisation, by its filter's account."""
    if FILTER_CONDITIONS not in metadata:
        told = "The materialisation does not say what its filter removed. Materialise the partition again."
        return Verdict(False, told, severity=dg.AssetCheckSeverity.WARN)
    rejected = {name: n for name, removed in metadata[FILTER_CONDITIONS].items() if (n := int(removed["first"]))}
    figures = {"rejected": dg.MetadataValue.json(rejected)}
    if not rejected:
        return Verdict(True, "Every row of the source could be kept.", figures)
    named = ", ".join(f"{number:,} by `{name}`" for name, number in rejected.items())
    return Verdict(
        False,
        f"{sum(rejected.values()):,} row(s) of the source were left out: {named}. Mend them there and load again.",
        figures,
        severity=dg.AssetCheckSeverity.WARN,
    )
