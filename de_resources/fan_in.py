"""Which inputs of a partition are there, and which are missing, by name. Part of *Unaligned Fan-In*.

Asked of the instance and not of the table: an hour without a single row is there, and an hour that a gate refuses is not,
though its rows may lie in the table. *Aligned Fan-In* tells the same of what it did without (`de_resources/gathering.py`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import dagster as dg

from de_resources.compat.graph import AssetGraph
from de_resources.gates import refused

COMPLETENESS, IS_APPROXIMATE, MISSING = "completeness", "is_approximate", "missing_inputs"
"""Metadata of a partition: the share of its inputs that were there, whether that was less than all, and what was not."""
NEVER = "never computed"
INPUTS = "fan_in/inputs"
"""Metadata of a partition: the digest of the inputs that were there."""


@dataclass(frozen=True)
class FanIn:
    """The inputs of a partition. `there`: the newest materialisation of each; `missing`: why, of the others. In order."""

    there: Mapping[str, int]
    missing: Mapping[str, str]

    @property
    def is_complete(self) -> bool:
        """Whether nothing is missing."""
        return not self.missing

    @property
    def completeness(self) -> float:
        """The share of the inputs that is there, from 0 to 1."""
        expected = len(self.there) + len(self.missing)
        return len(self.there) / expected if expected else 1.0

    @property
    def digest(self) -> str:
        """Another one whenever an input comes, is computed again, or is refused."""
        return hashlib.blake2b(repr(sorted(self.there.items())).encode(), digest_size=8).hexdigest()

    @property
    def told(self) -> dict[str, object]:
        """What a materialisation tells people of it."""
        return {
            COMPLETENESS: self.completeness,
            IS_APPROXIMATE: not self.is_complete,
            MISSING: dg.MetadataValue.json(dict(self.missing)),
        }

    @property
    def metadata(self) -> dict[str, object]:
        """The same with what tells whether other inputs are there by now."""
        return {**self.told, INPUTS: self.digest}

    def of(self, keys: Iterable[str]) -> FanIn:
        """The same of some of the inputs."""
        chosen = list(keys)
        return FanIn(
            {key: self.there[key] for key in chosen if key in self.there},
            {key: self.missing[key] for key in chosen if key in self.missing},
        )

    def beside(self, other: FanIn) -> FanIn:
        """The inputs of two assets: a partition that both have is there when it is there of both."""
        missing = {**other.missing, **self.missing}
        there = {**other.there, **self.there}
        return FanIn({key: there[key] for key in there if key not in missing}, missing)


def fan_in(instance: dg.DagsterInstance, graph: AssetGraph, source: dg.AssetKey, keys: Sequence[str]) -> FanIn:
    """What is there of these partitions of the source now. Two questions to the instance, however many there are."""
    written = instance.get_latest_storage_id_by_partition(source, dg.DagsterEventType.ASSET_MATERIALIZATION, set(keys))
    bad = refused(instance, graph, source, list(written))
    why = {**{key: NEVER for key in keys if key not in written}, **{key: f"refused by {bad[key]}" for key in bad}}
    missing = {key: why[key] for key in keys if key in why}
    return FanIn({key: written[key] for key in keys if key not in missing}, missing)
