"""Which inputs of a partition are there, which are missing, and which were made without something themselves, by name.

Part of *Unaligned Fan-In*.

Asked of the instance and not of the table: an hour without a single row is there, and an hour that a gate refuses is not,
though its rows may lie in the table. *Aligned Fan-In* tells the same of what it did without (`de_resources/gathering.py`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import dagster as dg

from de_resources.compat.graph import AssetGraph
from de_resources.gates import refused
from de_resources.promises import needed

COMPLETENESS, IS_APPROXIMATE, MISSING = "completeness", "is_approximate", "missing_inputs"
"""Metadata of a partition: the share of its inputs that were there, whether anything is missing in it, and what was not."""
LACKING = "approximate_inputs"
"""Metadata of a partition: of the inputs that were there, those that were made without something, with what and why."""
NEVER = "never computed"
INPUTS = "fan_in/inputs"
"""Metadata of a partition: the digest of the inputs that were there."""


Lacks = Mapping[str, Mapping[str, str]]
"""By input, what it was made without, and why."""


@dataclass(frozen=True)
class FanIn:
    """The inputs of a partition. `there`: the newest materialisation of each; `missing`: why, of the others. In order.

    `lacking` are inputs that are there and were made without something.
    """

    there: Mapping[str, int] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)
    lacking: Lacks = field(default_factory=dict)

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
            IS_APPROXIMATE: bool(self.missing or self.lacking),
            MISSING: dg.MetadataValue.json(dict(self.missing)),
            LACKING: dg.MetadataValue.json({key: dict(lacks) for key, lacks in self.lacking.items()}),
        }

    @property
    def metadata(self) -> dict[str, object]:
        """The same with what tells whether other inputs are there by now."""
        return {**self.told, INPUTS: self.digest}

    def lacks(self, lacking: Lacks, keys: Iterable[str]) -> FanIn:
        """The same, where some of these inputs lack something; one that is missing lacks everything, and is not said twice."""
        return replace(self, lacking={key: lacking[key] for key in keys if key in lacking and key not in self.missing})

    def of(self, keys: Iterable[str]) -> FanIn:
        """The same of some of the inputs."""
        chosen = list(keys)
        return FanIn(
            {key: self.there[key] for key in chosen if key in self.there},
            {key: self.missing[key] for key in chosen if key in self.missing},
            {key: self.lacking[key] for key in chosen if key in self.lacking},
        )

    def beside(self, other: FanIn) -> FanIn:
        """The inputs of two assets: a partition that both have is there when it is there of both."""
        missing = {**other.missing, **self.missing}
        there = {**other.there, **self.there}
        lacking = {
            key: {**other.lacking.get(key, {}), **self.lacking.get(key, {})} for key in (*other.lacking, *self.lacking)
        }
        return FanIn({key: there[key] for key in there if key not in missing}, missing, lacking)


def lacking(instance: dg.DagsterInstance, source: dg.AssetKey, keys: Sequence[str], *, deep: bool = True) -> Lacks:
    """What these partitions of the source have told that they were made without, by their newest materialisations.

    `deep`: and what those lacked of which they were made. Partitions that lack nothing are left out.
    """
    told = {key: _lacks(metadata, deep=deep) for key, metadata in _newest(instance, source, keys).items()}
    return {key: told[key] for key in keys if told.get(key)}


def _lacks(metadata: Mapping[str, dg.MetadataValue[Any]], *, deep: bool) -> dict[str, str]:
    missing, below = (metadata[name].value if name in metadata else {} for name in (MISSING, LACKING))
    inherited = {what: why for lacks in below.values() for what, why in lacks.items()} if deep else {}
    return {**inherited, **missing}


def _newest(
    instance: dg.DagsterInstance, source: dg.AssetKey, keys: Sequence[str]
) -> Mapping[str, Mapping[str, dg.MetadataValue[Any]]]:
    ids = instance.get_latest_storage_id_by_partition(source, dg.DagsterEventType.ASSET_MATERIALIZATION, set(keys))
    if not ids:
        return {}
    wanted = dg.AssetRecordsFilter(asset_key=source, storage_ids=sorted(ids.values()))
    records = instance.fetch_materializations(wanted, limit=len(ids)).records
    return {str(r.partition_key): r.asset_materialization.metadata for r in records if r.asset_materialization}


def fan_in(
    instance: dg.DagsterInstance,
    graph: AssetGraph,
    source: dg.AssetKey,
    keys: Sequence[str],
    gates: Collection[dg.AssetCheckKey],
) -> FanIn:
    """What is there of these partitions of the source now. Two questions to the instance, however many there are.

    `gates` are those that refuse an input, whose promises its reader needs.
    """
    written = instance.get_latest_storage_id_by_partition(source, dg.DagsterEventType.ASSET_MATERIALIZATION, set(keys))
    bad = refused(instance, graph, source, list(written), gates)
    why = {**{key: NEVER for key in keys if key not in written}, **{key: f"refused by {bad[key]}" for key in bad}}
    missing = {key: why[key] for key in keys if key in why}
    return FanIn({key: written[key] for key in keys if key not in missing}, missing)


def inputs_of(
    instance: dg.DagsterInstance, graph: AssetGraph, reader: dg.AssetKey, source: dg.AssetKey, keys: Sequence[str]
) -> FanIn:
    """The same as the reader needs it, with what those that are there were made without."""
    return fan_in(instance, graph, source, keys, needed(graph, [reader], source)).lacks(
        lacking(instance, source, keys), keys
    )
