"""The contracts of the graph beside their accepted versions, in `de_assets/contracts/versions`.

Pattern: Schema Compatibility Enforcer - a contract that changed so that a reader breaks does not load: every run loads it
before it writes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import dagster as dg

from de_resources.contract import Contract
from de_resources.contract.versions import ContractHistory, Readers, require_compatible, schema_of
from de_resources.lineage.readers import recorded_readers

VERSIONS = Path(__file__).with_name("contracts") / "versions"


def specs_of(assets: Iterable[Any]) -> list[dg.AssetSpec]:
    """What is declared of every asset, external ones too."""
    found = ([each] if isinstance(each, dg.AssetSpec) else getattr(each, "specs", ()) for each in assets)
    return [spec for specs in found for spec in specs]


def contracts_of(assets: Iterable[Any]) -> dict[dg.AssetKey, Contract]:
    """The contract of every asset that names one, topics of others among them."""
    specs = specs_of(assets)
    return {s.key: Contract.load(s.metadata["contract"]) for s in specs if s.metadata.get("contract")}


def require_accepted(assets: Sequence[Any], folder: Path = VERSIONS) -> None:
    """Raise `BreakingChange` for a contract that breaks readers. Costs a file per contract; a contract without one is new.

    Who reads a column is looked up where something is wrong only: from the lineage that was recorded with the newest
    materialisations, and where there is none, from the graph.
    """
    for key, contract in contracts_of(assets).items():
        require_compatible(contract, folder, readers_of(key, assets, contract))


def accept(contract: Contract, readers: Readers, *, breaking: str = "", folder: Path = VERSIONS) -> int | None:
    """Keep the contract's schema as its newest version, and return its number; None: it is that already.

    Raises `BreakingChange`, unless `breaking` says why it is accepted nevertheless.
    """
    if not breaking:
        require_compatible(contract, folder, readers)
    history, schema = ContractHistory.read(folder, contract.name), schema_of(contract)
    broken = history.breaks(schema, contract.compatibility)
    accepted = history.accepted(schema, breaking if broken else "")
    if accepted is history:
        return None
    folder.mkdir(exist_ok=True)
    accepted.write(folder)
    return accepted.versions[-1].number


def readers_of(key: dg.AssetKey, assets: Sequence[Any], contract: Contract) -> Readers:
    """Who reads a column of the asset, when asked: by recorded lineage, else by the graph; and who the contract names."""
    return lambda column: [*_readers(key, assets, column), *contract.consumers]


def _readers(key: dg.AssetKey, assets: Sequence[Any], column: str) -> list[str]:
    deps = (each.asset_deps.items() for each in assets if isinstance(each, dg.AssetsDefinition))
    downstream = sorted({reader for found in deps for reader, sources in found if key in sources})
    if os.environ.get("DAGSTER_HOME"):
        with dg.DagsterInstance.get() as instance:
            recorded = recorded_readers(instance, downstream, key, column)
        if recorded is not None:
            return recorded
    return [f"{each.to_user_string()} (downstream; no lineage is recorded)" for each in downstream]
