"""`de doctor`: what this machine has, what it lacks, and the command that helps. Starts and changes nothing."""

import json
import os
from typing import Annotated

import typer
from rich.text import Text

from de_assets.cli.doctor.finding import Finding, FindingVerdict
from de_assets.cli.terminal import console
from de_resources.settings import ROOTS, Settings, is_folder

_COLOURS = {FindingVerdict.OK: "green", FindingVerdict.WARN: "yellow", FindingVerdict.FAIL: "red"}


def doctor(as_json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False) -> None:
    """Look at versions, Java, jars, PostgreSQL, disk, variables, ports, services. Exit status 1 if something fails."""
    from de_assets.cli.doctor.diagnosis import diagnose

    # What the settings refuse is one of the findings.
    usable = {name: value for name, value in os.environ.items() if name not in ROOTS or is_folder(value)}
    findings = diagnose(Settings.from_environment(usable), os.environ)
    if as_json:
        typer.echo(json.dumps([finding.as_dict() for finding in findings], indent=2))
    else:
        _show(findings)
    if any(finding.verdict is FindingVerdict.FAIL for finding in findings):
        raise typer.Exit(1)


def _show(findings: list[Finding]) -> None:
    """Lines instead of a table: a command that is cut or folded cannot be copied."""
    width = max(len(finding.name) for finding in findings)
    for f in findings:
        verdict = f"{f.verdict:<4}", _COLOURS[f.verdict]
        console.print(Text.assemble(verdict, f"  {f.name:<{width}}  {f.detail}"), soft_wrap=True)
        if f.remedy:
            console.print(f"      {'':<{width}}  → {f.remedy}", soft_wrap=True, highlight=False)
