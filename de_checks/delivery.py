"""Has the receiver got all that was planned for it? What the run of a feed noted says so."""

from collections.abc import Collection, Mapping
from typing import Any

import dagster as dg

from de_checks.factory import CheckRun, check_per_key, key_by_key
from de_checks.per_key import Key, Materialized, Verdict
from de_checks.subject import Subject

LEFT = {
    "delivery/undeliverable": "refused for good",
    "delivery/held": "held behind a refused one of their key",
    "delivery/waiting": "not sent yet",
}
"""Figures of records that have not arrived, and what is said of them."""


def delivery_check(
    asset: Subject, *, patterns: Collection[str], name: str = "everything_is_delivered"
) -> dg.AssetChecksDefinition:
    """A check, per partition key, that every record of the feed has arrived or was given up by a person. It holds nothing back.

    Reads the metadata of materialisations (`de_resources.delivery.feed`): no database, no receiver is asked. Metadata of a
    verdict: the records, and those that have not arrived by reason. A person gives refused records up by a run of the asset
    with their keys in `release`; what was held behind them is sent by the same run, and the check passes.
    """

    def judge(_run: CheckRun, _key: Key, current: Materialized) -> Verdict:
        return judged(current.metadata)

    return check_per_key(
        asset,
        name,
        key_by_key(judge),
        description="Every planned record has arrived at the receiver.",
        patterns=patterns,
    )


def judged(metadata: Mapping[str, Any]) -> Verdict:
    """The verdict on one materialisation."""
    if "delivery/records" not in metadata:
        return Verdict(False, "The materialisation does not say what was delivered. Materialise the partition again.")
    left = {name: number for name in LEFT if (number := int(metadata.get(name, 0)))}
    figures = {"records": int(metadata["delivery/records"]), **{name.partition("/")[2]: n for name, n in left.items()}}
    if not left:
        return Verdict(True, f"All of {figures['records']:,} record(s) have arrived.", figures)
    named = ", ".join(f"{number:,} {LEFT[name]}" for name, number in left.items())
    return Verdict(False, f"Of {figures['records']:,} record(s) some have not arrived: {named}.", figures)
