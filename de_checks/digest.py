"""Is the replica what its source is? Digests of both sides, compared by name. Pattern: Passthrough Replicator.

What a name stands for is the replicator's affair: a file, a partition of a topic, a commit of a table's log.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import dagster as dg

from de_checks.factory import CheckRun, check_per_key, key_by_key
from de_checks.per_key import Key, Materialized, Verdict
from de_checks.subject import Subject

Digests = Mapping[str, str]
Sides = Callable[[Any, Mapping[str, Any]], tuple[Digests, Digests]]
"""From the run's resources and the metadata of the judged materialisation to the digests of source and replica."""

SHOWN = 10


def digest_check(
    asset: Subject, sides: Sides, *, resources: set[str], name: str = "equals_its_source", blocking: bool = True
) -> dg.AssetChecksDefinition:
    """A check that source and replica have the same names with the same digests.

    `sides` reads both; `resources` are the keys of the resources that it asks for, as attributes of its first argument.
    It reads what is there when the check runs, so that a replica that was damaged later turns red when checked again. A
    failure names up to ten differences of each kind. Metadata of a verdict: `compared`, and where red `differing`,
    `missing`, `unexpected`. Errors of `sides`, such as a source that does not answer, are the run's own.
    """

    def judge(run: CheckRun, _key: Key, current: Materialized) -> Verdict:
        return compare(*sides(run.resources, current.metadata))

    return check_per_key(
        asset,
        name,
        key_by_key(judge),
        description="The digests of the replica are those of its source.",
        patterns=["passthrough_replicator"],
        blocking=blocking,
        resources=resources,
    )


@dataclass(frozen=True)
class Difference:
    """Names with another digest, names that the replica lacks, and names that only the replica has."""

    differing: list[str]
    missing: list[str]
    unexpected: list[str]

    @classmethod
    def between(cls, source: Digests, replica: Digests) -> "Difference":
        """What is not the same on both sides."""
        return cls(
            sorted(n for n in source.keys() & replica.keys() if source[n] != replica[n]),
            sorted(source.keys() - replica.keys()),
            sorted(replica.keys() - source.keys()),
        )


def compare(source: Digests, replica: Digests) -> Verdict:
    """The verdict on two sides. Two empty sides are equal, and said to be empty."""
    found = Difference.between(source, replica)
    figures: dict[str, Any] = {"compared": len(source)}
    kinds = {name: names for name, names in vars(found).items() if names}
    if not kinds:
        return Verdict(True, f"All {len(source):,} digests are the source's." if source else "Both are empty.", figures)
    told = "; ".join(f"{kind}: {_listed(names)}" for kind, names in kinds.items())
    return Verdict(
        False,
        f"The replica is not its source ({told}). Run the replication again; if it stays so, remove the replica first.",
        {**figures, **{kind: dg.MetadataValue.json(names[:SHOWN]) for kind, names in kinds.items()}},
    )


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else ""
    return ", ".join(f"`{name}`" for name in names[:SHOWN]) + more
