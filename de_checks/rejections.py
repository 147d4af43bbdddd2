"""Did the source send rows that nobody can keep? The account of the filter that leaves them out says how many."""

from collections.abc import Iterator, Mapping
from typing import Any

import dagster as dg

from de_checks.patterns import carries
from de_checks.per_key import Key, Materialized, Verdict, evaluate, spec_for
from de_checks.subject import Subject
from de_resources.delta.metadata import FILTER_CONDITIONS
from de_resources.retries import RETRY_TRANSIENT

ACCEPT_TAG = "de/rejections_accepted"
"""Run tag with the reason for which a person does without the rejected rows."""


def rejection_check(asset: Subject, *, name: str = "no_row_was_rejected") -> dg.AssetChecksDefinition:
    """A check, per partition key, which warns where a condition of the asset's filter removed any row. It holds nothing back.

    For filters whose conditions every row of a sound source meets (`intercept`); for others there is `filter_check`. Reads
    the metadata of materialisations: no engine, no table is touched. Metadata of a verdict: `rejected`, rows by condition. A
    person passes it by executing the check with the run tag `de/rejections_accepted` and the reason as its value. Once the
    source is mended and the partition materialised again, it passes.
    """
    spec = spec_for(
        asset,
        name,
        description="Every row of the source could be kept.",
        blocking=False,
        metadata=carries("filter_interceptor"),
    )

    @dg.multi_asset_check(
        retry_policy=RETRY_TRANSIENT, name=spec.get_python_identifier(), specs=[spec], can_subset=True
    )
    def no_row_was_rejected(
        context: dg.AssetCheckExecutionContext,
    ) -> Iterator[dg.AssetCheckEvaluation | dg.Output[None]]:
        def judge(materialized: Mapping[Key, Materialized]) -> Mapping[Key, Verdict]:
            reason = context.run.tags.get(ACCEPT_TAG)
            return {key: judged(current.metadata).accepted_for(reason) for key, current in materialized.items()}

        yield from evaluate(context, spec, judge)

    return no_row_was_rejected


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
