"""`de doctor`: what this machine has, what it lacks, and the command that helps. Starts and changes nothing."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Annotated

import typer
from rich.markup import escape

from de_assets.catalogue import PROJECT
from de_assets.cli.app import app, console
from de_assets.cli.doctor.finding import Finding, Verdict
from de_assets.cli.doctor.machine import check_browser, check_disk, check_java, check_postgres, check_python
from de_assets.cli.doctor.packages import Pins, check_jars, check_packages
from de_assets.cli.doctor.services import check_ports, check_service, check_slot
from de_assets.cli.doctor.variables import check_variables
from de_assets.sources.capture import CAPTURES
from de_resources import capture
from de_resources.local.endpoints import ServiceStatus, ServiceUnavailable
from de_resources.local.jars import SETS
from de_resources.local.services import LocalServices
from de_resources.postgres import PostgresDatabase
from de_resources.settings import Settings

_COLOURS = {Verdict.OK: "green", Verdict.WARN: "yellow", Verdict.FAIL: "red"}


@app.command()
def doctor(as_json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False) -> None:
    """Look at versions, Java, jars, PostgreSQL, disk, variables, ports, services. Exit status 1 if something fails."""
    findings = diagnose(Settings.from_environment(), os.environ)
    if as_json:
        typer.echo(json.dumps([finding.as_dict() for finding in findings], indent=2))
    else:
        _show(findings)
    if any(finding.verdict is Verdict.FAIL for finding in findings):
        raise typer.Exit(1)


def diagnose(settings: Settings, environment: Mapping[str, str]) -> list[Finding]:
    """All findings, in the order in which things are needed. Takes a second or two: every jar is read."""
    pins = Pins.of_project(PROJECT / "pyproject.toml")
    statuses = LocalServices(settings).status()
    return [
        check_python(pins.python),
        check_packages(pins.packages),
        check_java(),
        *(check_jars(settings, jar_set) for jar_set in SETS),
        check_postgres(settings),
        check_disk(settings.home),
        *check_variables(environment),
        *check_ports(environment, statuses),
        *(check_service(status) for status in statuses),
        *_slots(statuses),
        check_browser(),
    ]


def _slots(statuses: Sequence[ServiceStatus]) -> Iterator[Finding]:
    """What captures hold in the database, where it runs."""
    if any(status.name == "postgres" and status.is_running for status in statuses):
        with suppress(ServiceUnavailable):  # the finding about the service says it
            yield from [check_slot(source, capture.status(PostgresDatabase(), source)) for source in CAPTURES]


def _show(findings: list[Finding]) -> None:
    """Lines instead of a table: a command that is cut or folded cannot be copied."""
    width = max(len(finding.name) for finding in findings)
    for f in findings:
        verdict = f"[{_COLOURS[f.verdict]}]{f.verdict:<4}[/]"
        console.print(f"{verdict}  {f.name:<{width}}  {escape(f.detail)}", soft_wrap=True, highlight=False)
        if f.remedy:
            console.print(f"      {'':<{width}}  → {escape(f.remedy)}", soft_wrap=True, highlight=False)
