"""Which promises of what it reads an asset needs: a red gate stops who needs what it guards, and not their siblings.

A gate (a blocking check) guards a promise: no row breaks a rule, a key identifies one row. Who reads an asset needs all of
them, unless it says which ones:

    metadata={"needs": {"silver/visits_enriched": ["rows_meet_contract"]}}

Distinct visitors, for one, are the same though a visit is there twice. Asked for by all that hold something back: the steps
of a run (`held_back`), and whoever decides what is computed at all. A condition is told the same (`gated(needs=…)`), for
Dagster evaluates it without the asset's metadata.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import dagster as dg

from de_resources.compat.graph import AssetGraph
from de_resources.errors import PermanentError

NEEDS = "needs"
"""Metadata of a reader: the names of the gates that it needs, by the asset that it reads."""

Needs = Mapping[str, Sequence[str]]


class NoSuchPromise(PermanentError):
    """An asset needs a promise that no gate guards."""

    def __init__(self, reader: str, parent: str, names: Collection[str], gates: Collection[str]) -> None:
        self.reader, self.parent = reader, parent
        super().__init__(
            f"`{reader}` needs {', '.join(sorted(names))} of `{parent}`, whose blocking checks are {', '.join(sorted(gates))}."
        )


def gates_of(graph: AssetGraph, asset: dg.AssetKey) -> frozenset[dg.AssetCheckKey]:
    """The asset's blocking checks."""
    return frozenset(key for key in graph.get(asset).check_keys if graph.get(key).blocking)


def needed(graph: AssetGraph, readers: Collection[dg.AssetKey], parent: dg.AssetKey) -> frozenset[dg.AssetCheckKey]:
    """The gates of `parent` that one of its readers needs. Raises `NoSuchPromise`."""
    gates, found = gates_of(graph, parent), set[dg.AssetCheckKey]()
    for reader in readers:
        declared: Needs = graph.get(reader).metadata.get(NEEDS) or {}
        names = declared.get(parent.to_user_string())
        own = gates if names is None else frozenset(gate for gate in gates if gate.name in names)
        if gates and names is not None and (unknown := {*names} - {gate.name for gate in own}):
            raise NoSuchPromise(reader.to_user_string(), parent.to_user_string(), unknown, {g.name for g in gates})
        found |= own
    return frozenset(found)
