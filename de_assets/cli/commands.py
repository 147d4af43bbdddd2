"""All command modules; importing one registers its commands."""

from de_assets.cli import capture, doctor, patterns, run, seed, services

__all__ = ["capture", "doctor", "patterns", "run", "seed", "services"]
