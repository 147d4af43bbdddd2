"""The command line `de`: services, data, runs, patterns, health. Every command has `--help`.

A module of this package is functions: importing it registers nothing, and changes nothing in the process.
"""

from collections.abc import Sequence


def app(arguments: Sequence[str] | None = None, *, standalone_mode: bool = True) -> None:
    """The entry point: run a command, by default that of the process's own arguments, and end with its exit status.

    Without `standalone_mode` it returns, and errors of usage are raised.
    """
    from de_assets.cli.terminal import quiet

    quiet()
    from de_assets.cli.application import application

    application()(arguments, standalone_mode=standalone_mode)
