"""The command line `de`: services, data, runs, patterns, health. Every command has `--help`."""

from de_assets.cli.app import app

__all__ = ["app"]
