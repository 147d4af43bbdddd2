"""All command modules; importing one registers its commands."""

from de_assets.cli import doctor, patterns, run, seed, services

__all__ = ["doctor", "patterns", "run", "seed", "services"]
