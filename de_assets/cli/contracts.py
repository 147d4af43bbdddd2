"""`de contracts`: accept what a contract has become, after a look at who would break."""

from __future__ import annotations

from typing import Annotated

import typer

from de_assets.cli.terminal import console, explained
from de_resources.errors import PermanentError

HELP = "Contracts of datasets: accept a changed one as its next version."


class NoSuchContract(PermanentError):
    """A name that no dataset's contract has."""

    def __init__(self, name: str, known: list[str]) -> None:
        self.name, self.known = name, tuple(known)
        super().__init__(f"No dataset has the contract `{name}`. There are {', '.join(known)}.")


def accept(
    names: Annotated[list[str] | None, typer.Argument(help="Contracts, such as silver.visits; default: all.")] = None,
    breaking: Annotated[str, typer.Option(help="Why a change is accepted that breaks readers.")] = "",
) -> None:
    """Keep changed contracts as their next versions in de_assets/contracts/versions; to break readers needs a reason."""
    from de_assets.contract_versions import accept as accepted
    from de_assets.contract_versions import contracts_of, readers_of
    from de_assets.graph_assets import assets

    with explained():
        known = {contract.name: (key, contract) for key, contract in contracts_of(assets).items()}
        unknown = [name for name in names or () if name not in known]
        if unknown:
            raise NoSuchContract(unknown[0], sorted(known))
        for name in names or sorted(known):
            key, contract = known[name]
            number = accepted(contract, readers_of(key, assets), breaking=breaking)
            if number is not None:
                console.print(f"{name}: version {number}", highlight=False)
