"""Programs that a test puts in the place of those of the machine."""

from __future__ import annotations

from pathlib import Path


def program(folder: Path, name: str, script: str) -> Path:
    """A program in a folder of its own, for the PATH."""
    folder.mkdir(parents=True, exist_ok=True)
    found = folder / name
    found.write_text(f"#!/bin/sh\n{script}\n")
    found.chmod(0o755)
    return found
