"""The lock file of the jars: what it holds, and how it is made again after a version was changed here.

`python -m de_resources.local.jars_lock` resolves the roots with all they need, leaves out what pyspark already has,
and writes `jars.lock`: one line `group:artifact:version sha256 set` per jar. Nothing else in the platform resolves
versions.
"""

from __future__ import annotations

import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree as Xml

from de_resources.atomic_files import sha256
from de_resources.local.ivy import SPARK_JARS, Coordinate, retrieve

LOCK_FILE = Path(__file__).with_name("jars.lock")

ROOTS = {
    "engine": [
        "io.delta:delta-spark_4.2_2.13:4.4.0",
        "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
        "org.postgresql:postgresql:42.7.8",
    ],
    "broker": [
        "org.apache.kafka:kafka_2.13:4.3.1",
        "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4",
    ],
}
# The token provider of 4.2.0 was never published; the one of 4.0.0 has the same interface (a test reads a SASL topic).
FORCED = ["org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0"]

# Contained in the RoaringBitmap that pyspark has.
LEFT_OUT = {"shims"}


@dataclass(frozen=True, order=True)
class LockedJar:
    """One jar of the lock: which artifact, its content, and whose class path it belongs to."""

    jar_set: str
    coordinate: Coordinate
    sha256: str


def read_lock(path: Path = LOCK_FILE) -> list[LockedJar]:
    """All jars of the lock file, in its order."""
    rows = (line.split() for line in path.read_text().splitlines() if line and not line.startswith("#"))
    return [LockedJar(jar_set, Coordinate.parse(coordinate), sha256) for coordinate, sha256, jar_set in rows]


def write_lock(path: Path = LOCK_FILE) -> list[LockedJar]:
    """Resolve the roots over the network and replace the lock file."""
    with tempfile.TemporaryDirectory() as folder:
        jars = sorted(jar for jar_set in ROOTS for jar in _resolve(jar_set, Path(folder) / jar_set))
    lines = [f"{jar.coordinate} {jar.sha256} {jar.jar_set}" for jar in jars]
    path.write_text("# Made by `python -m de_resources.local.jars_lock`.\n" + "\n".join(lines) + "\n")
    return jars


def _resolve(jar_set: str, folder: Path) -> list[LockedJar]:
    """The jars of one set; the engine's without those whose names pyspark already has, in whatever version."""
    roots, forced = map(Coordinate.parse, ROOTS[jar_set]), map(Coordinate.parse, FORCED)
    retrieve(jar_set, roots, folder / "jars", folder / "cache", transitive=True, forced=forced)
    provided = {_artifact_of(jar.name) for jar in SPARK_JARS.glob("*.jar")} | LEFT_OUT if jar_set == "engine" else set()
    return [
        LockedJar(jar_set, coordinate, sha256(folder / "jars" / coordinate.file_name))
        for coordinate in _resolved_coordinates(folder / "cache" / f"de-{jar_set}-default.xml")
        if coordinate.artifact not in provided and (folder / "jars" / coordinate.file_name).exists()
    ]


def _resolved_coordinates(report: Path) -> list[Coordinate]:
    """Read Ivy's report of one resolution: every revision that has artifacts, i.e. was not evicted."""
    modules = Xml.parse(report).iterfind("./dependencies/module")  # noqa: S314 - written by Ivy a moment ago
    return [
        Coordinate(module.attrib["organisation"], module.attrib["name"], revision.attrib["name"])
        for module in modules
        for revision in module.iterfind("revision")
        if revision.find("artifacts/artifact") is not None
    ]


def _artifact_of(jar_name: str) -> str:
    return re.sub(r"-\d[^-]*(-[A-Za-z0-9.]+)*\.jar$", "", jar_name)


if __name__ == "__main__":
    write_lock()
