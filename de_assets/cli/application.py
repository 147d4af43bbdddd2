"""The application: every command by name, registered here and nowhere else."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import typer

from de_assets.cli import (
    capture,
    contracts,
    dlq,
    doctor,
    impact,
    let_pass,
    migrate,
    observe,
    openlineage,
    patterns,
    plan,
    publish,
    run,
    seed,
    services,
    starts,
    trace,
    waits,
)

Command = Callable[..., None]
"""A function whose parameters are the command's arguments and options, and whose docstring is its help."""

COMMANDS: Sequence[Command] = (
    doctor.doctor,
    patterns.patterns,
    plan.plan,
    impact.impact,
    starts.starts,
    waits.waits,
    trace.trace,
    publish.publish,
    publish.rollback,
    let_pass.let_pass,
    migrate.migrate,
    observe.observe,
    seed.seed,
    seed.land,
    run.run,
    services.up,
    services.down,
    services.status,
    services.alerts,
    services.logs,
    services.jars,
)
GROUPS: Mapping[str, tuple[str, Sequence[Command]]] = {
    "capture": (capture.HELP, (capture.status, capture.drop)),
    "contracts": (contracts.HELP, (contracts.accept, contracts.export)),
    "dlq": (dlq.HELP, (dlq.inspect, dlq.replay, dlq.discard)),
    "openlineage": (openlineage.HELP, (openlineage.validate,)),
}


def application() -> typer.Typer:
    """The command `de` with all its commands."""
    app = typer.Typer(
        name="de",
        help="The blog-analytics lakehouse: start its services, feed it, materialise it, ask how it is.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    for name, (told, commands) in GROUPS.items():
        group = typer.Typer(help=told, no_args_is_help=True)
        _register(group, commands)
        app.add_typer(group, name=name)
    _register(app, COMMANDS)
    return app


def _register(app: typer.Typer, commands: Sequence[Command]) -> None:
    for command in commands:
        app.command()(command)
