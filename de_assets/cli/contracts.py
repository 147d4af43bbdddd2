"""`de contracts`: accept what a contract has become, after a look at who would break; hand contracts to other tools."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from de_assets.cli.terminal import console, explained
from de_resources.errors import PermanentError
from de_resources.settings import Settings

if TYPE_CHECKING:
    from de_assets.contract_documents import Documents

HELP = "Contracts of datasets: accept a changed one as its next version, or write them for other tools."


class NoSuchContract(PermanentError):
    """A name that no dataset's contract has."""

    def __init__(self, name: str, known: list[str]) -> None:
        self.name, self.known = name, tuple(known)
        super().__init__(f"No dataset has the contract `{name}`. There are {', '.join(known)}.")


class DocumentsOutdated(PermanentError):
    """Documents in a folder that do not say what the contracts say."""

    def __init__(self, folder: Path, files: int) -> None:
        self.folder, self.files = folder, files
        super().__init__(
            f"{files:,} document(s) in {folder} do not say what the contracts say. Write them again: "
            "`de contracts export --to FOLDER`."
        )


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
            number = accepted(contract, readers_of(key, assets, contract), breaking=breaking)
            if number is not None:
                console.print(f"{name}: version {number}", highlight=False)


def export(
    names: Annotated[list[str] | None, typer.Argument(help="Contracts, such as silver.visits; default: all.")] = None,
    to: Annotated[Path | None, typer.Option(help="Folder for the files; default: $DE_HOME/contracts.")] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; status 1, and why, if the files differ.")
    ] = False,
) -> None:
    """Write contracts as documents of the Open Data Contract Standard (ODCS), a YAML file each; a single one is printed.

    A file says the same on every machine, but for the addresses of the systems that serve the dataset.
    """
    from de_assets.contract_documents import Documents, text_of, write
    from de_assets.graph_assets import assets

    settings = Settings.from_environment()
    with explained():
        documents = Documents(assets, settings)
        unknown = [name for name in names or () if name not in documents.names]
        if unknown:
            raise NoSuchContract(unknown[0], documents.names)
        chosen, folder = names or documents.names, to or settings.home / "contracts"
        if check:
            _compare(documents, chosen, folder)
        elif to is None and names is not None and len(names) == 1:
            typer.echo(text_of(documents.of(names[0])), nl=False)
        else:
            written = write(documents, chosen, folder)
            console.print(f"{len(written)} contract(s) written to {folder}", highlight=False)


def _compare(documents: Documents, names: list[str], folder: Path) -> None:
    from de_assets.contract_documents import stale

    found = stale(documents, names, folder)
    for file, told in found.items():
        for line in told:
            console.print(f"{file}: {line}", highlight=False)
    if found:
        raise DocumentsOutdated(folder, len(found))
    console.print(f"{len(names)} contract(s) in {folder} are as they are here.", highlight=False)
