"""What the machine has to bring: Java, Python, PostgreSQL, disk space, and a browser for the browser test."""

from __future__ import annotations

import os
import platform
import shutil
from pathlib import Path

from packaging.specifiers import SpecifierSet

from de_assets.cli.doctor.finding import Finding, fail, ok, warn
from de_resources.local.java import MINIMUM_VERSION, JavaMissing, java_executable, java_version
from de_resources.local.postgres_binaries import find_binaries
from de_resources.local.postgres_server import PostgresService
from de_resources.local.service import LeftOut
from de_resources.settings import Settings

LEAST_FREE = 2 * 2**30
"""Bytes below which the jars, the services' logs and a first run may not fit."""
COMFORTABLE_FREE = 10 * 2**30

# Debian and Ubuntu carry one or the other, by release.
INSTALL_JAVA = "apt-get install -y openjdk-21-jre-headless || apt-get install -y openjdk-17-jre-headless"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def check_java() -> Finding:
    """A Java that the engine and the broker run on, from JAVA_HOME or else the PATH."""
    home = os.environ.get("JAVA_HOME")
    try:
        java = java_executable()
    except JavaMissing as missing:
        version = "none" if missing.found is None else f"Java {missing.found}"
        where = f"in JAVA_HOME ({home})" if home else "on the PATH"
        other = "Point JAVA_HOME at a newer JDK or unset it, or run" if home else "Run"
        detail = f"{version} {where}; Java {MINIMUM_VERSION} or newer is needed"
        return fail("java", detail, f"{other} `{INSTALL_JAVA}`.")
    return ok("java", f"Java {java_version(java)} at {java}")


def check_python(requires: str, version: str | None = None) -> Finding:
    """The interpreter (default: this one) fits `requires`, a specifier such as `>=3.11,<3.13`."""
    version = version or platform.python_version()
    if SpecifierSet(requires).contains(version, prereleases=True):
        return ok("python", f"Python {version}")
    remedy = "Make a new environment with such a Python: `python3.11 -m venv .venv`, then `make setup`."
    return fail("python", f"Python {version}; {requires} is needed", remedy)


def check_postgres(settings: Settings) -> Finding:
    """PostgreSQL's server programs are there and may be run. Without them what reads the database is left out."""
    service = PostgresService(settings)
    found = find_binaries(service.data)
    if found is None:
        detail = "no server program that can serve the data was found; what reads the database is left out"
        return warn("postgresql", detail, "Run `apt-get install -y postgresql`, then `de up postgres`.")
    try:
        service.check()
    except LeftOut as reason:
        return warn("postgresql", str(reason), "Do what it says, then run `de up postgres`.")
    return ok("postgresql", f"PostgreSQL {found.major} in {found.folder}")


def check_disk(home: Path, free: int | None = None) -> Finding:
    """Room for the tables; `free` bytes, by default those of the file system that holds, or will hold, `home`."""
    existing = next(place for place in (home, *home.parents) if place.exists())
    free = shutil.disk_usage(existing).free if free is None else free
    detail = f"{free / 2**30:.1f} GiB free under {existing}"
    remedy = f"See what takes it with `du -xh --max-depth=2 '{existing}' | sort -h | tail`, or point DE_HOME elsewhere."
    if free < LEAST_FREE:
        return fail("disk", f"{detail}; {LEAST_FREE / 2**30:.0f} GiB are needed", remedy)
    if free < COMFORTABLE_FREE:
        return warn("disk", f"{detail}; large simulations need more", remedy)
    return ok("disk", detail)


def check_browser() -> Finding:
    """Chromium, for the browser test and its screenshots only."""
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        detail = "none of " + ", ".join(BROWSERS) + "; only the browser test needs it"
        return warn("chromium", detail, "Run `apt-get install -y chromium`.")
    return ok("chromium", found)
