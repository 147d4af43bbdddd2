"""`de openlineage`: events that were told, held against the schemas that OpenLineage has published."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from de_assets.cli.terminal import console, explained
from de_resources.errors import PermanentError
from de_resources.settings import Settings

HELP = "OpenLineage events of runs: hold them against the published schemas."


class NoEvents(PermanentError):
    """Nothing to hold against the schemas, which is not the same as events that are valid."""

    def __init__(self, where: str) -> None:
        super().__init__(f"There are no events in {where}. Run something first, or name files with one event a line.")


class InvalidEvents(PermanentError):
    """Events that do not say what the published schemas want."""

    def __init__(self, invalid: int, events: int) -> None:
        self.invalid, self.events = invalid, events
        super().__init__(f"{invalid:,} of {events:,} events are not valid.")


def validate(
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Files with one event a line; default: those of this home.", exists=True, dir_okay=False, readable=True
        ),
    ] = None,
    spec: Annotated[
        Path, typer.Option(help="Folder with the schemas: website/static/spec of OpenLineage's repository.")
    ] = Path("spec"),
) -> None:
    """Hold events against the JSON schemas that they name, and each facet against its own; status 1 if one is not valid."""
    from de_assets.automation.openlineage import FOLDER
    from de_resources.openlineage.validity import Specification, held

    with explained():
        folder = Settings.from_environment().home / FOLDER
        specification = Specification.read(spec)
        events = invalid = 0
        for file in files or sorted(folder.glob("events-*.jsonl")):
            for number, problems in held(specification, file):
                events += 1
                invalid += bool(problems)
                for problem in problems:
                    console.print(f"{file}:{number}: {problem}", highlight=False)
        if not events:
            raise NoEvents(", ".join(map(str, files or [folder])))
        if invalid:
            raise InvalidEvents(invalid, events)
        console.print(f"{events:,} events are valid, and all of their facets.", highlight=False)
