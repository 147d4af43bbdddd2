"""Are the versions in the environment, and the jars in their cache, the ones that the project pins?"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

from de_assets.cli.doctor.finding import Finding, fail, ok, warn
from de_resources.atomic_files import sha256
from de_resources.local.jars import JarsMissing, broker_jars, engine_jars
from de_resources.local.jars_lock import read_lock
from de_resources.settings import Settings

DISTRIBUTION = "de-patterns"
_FIND = {"engine": engine_jars, "broker": broker_jars}


@dataclass(frozen=True)
class Pins:
    """What the project requires: its Python, and its packages as requirement strings."""

    python: str
    packages: tuple[str, ...]

    @classmethod
    def of_project(cls, pyproject: Path) -> Pins:
        """From the project file where there is one: an editable installation does not notice that the pins changed."""
        if pyproject.exists():
            project = tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]
            return cls(project["requires-python"], tuple(project["dependencies"]))
        installed = metadata.metadata(DISTRIBUTION)
        required = (line for line in metadata.requires(DISTRIBUTION) or () if "extra ==" not in line)
        return cls(installed["Requires-Python"], tuple(required))


def check_packages(requirements: Iterable[str]) -> Finding:
    """Every requirement is installed in a version that it allows; names those that are not."""
    parsed = [Requirement(text) for text in requirements]
    applicable = [each for each in parsed if each.marker is None or each.marker.evaluate()]
    wrong = [complaint for each in applicable if (complaint := _complaint(each))]
    if wrong:
        return fail("packages", "; ".join(wrong), "Run `make setup`, or `pip install -e .` in the environment.")
    return ok("packages", f"{len(applicable)} requirements installed as pinned")


def check_jars(settings: Settings, jar_set: str) -> Finding:
    """The set (`engine` or `broker`) is in the cache, and each jar has the lock file's SHA-256. Reads every byte.

    Without the engine's jars nothing runs; without the broker's, only what reads topics is left out.
    """
    name = f"{jar_set} jars"
    try:
        jars = _FIND[jar_set](settings)
    except JarsMissing as missing:
        verdict = fail if jar_set == "engine" else warn
        return verdict(name, f"not in {missing.folder}", "Run `de up` once with a network; it fetches them.")
    expected = {jar.coordinate.file_name: jar.sha256 for jar in read_lock() if jar.jar_set == jar_set}
    altered = [jar.name for jar in jars if sha256(jar) != expected[jar.name]]
    if altered:
        folder = settings.jars / jar_set
        remedy = f"Run `de down && rm -r '{folder}' && de up` with a network, and find out who wrote there."
        return fail(name, f"not as locked: {', '.join(altered)}", remedy)
    return ok(name, f"{len(jars)} verified in {settings.jars / jar_set}")


def _complaint(requirement: Requirement) -> str | None:
    try:
        version = metadata.version(requirement.name)
    except metadata.PackageNotFoundError:
        return f"{requirement.name} is not installed"
    if requirement.specifier.contains(version, prereleases=True):
        return None
    return f"{requirement.name} is {version} instead of {requirement.specifier}"
