"""All command modules; importing one registers its commands."""

from de_assets.cli import capture, dlq, doctor, patterns, plan, run, seed, services

__all__ = ["capture", "dlq", "doctor", "patterns", "plan", "run", "seed", "services"]
