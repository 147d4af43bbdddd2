"""Hadoop's settings without the defaults of YARN and MapReduce, of which no engine here makes use.

Spark copies all of Hadoop's settings for each query, and sends them with each scan of files: 1,146, of which 721 are these. A
jar in front of Hadoop's own has an empty file in the place of each of their two. It is a jar because the archive of an engine's
classes knows no folders (`class_archive`). Where it was not made, nothing but time is different.

Source: Hadoop's `Configuration`, which takes the first file of a name that the class path has.
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from uuid import uuid4

from filelock import FileLock

from de_resources.settings import Settings

_REPLACED = ("mapred-default.xml", "yarn-default.xml")


def hadoop_defaults(settings: Settings) -> list[Path]:
    """What stands first on an engine's class path: the jar, if it was made."""
    jar = _jar(settings)
    return [jar] if jar.exists() else []


def keep_hadoop_defaults(settings: Settings) -> Path | None:
    """Make the jar where it is missing, and return it. A rerun leaves it alone: the archive of classes knows it by its time.
    Two processes that ask at once wait for each other.

    None where it could not be made, which is no error: engines start without it.
    """
    jar = _jar(settings)
    if jar.exists():
        return jar
    try:
        with FileLock(settings.jars / ".lock"):
            return jar if jar.exists() else _written(jar)
    except OSError:
        return None


def _written(jar: Path) -> Path:
    written = jar.with_name(f".{jar.name}.{uuid4().hex}")
    with zipfile.ZipFile(written, "w") as content:
        for name in _REPLACED:
            content.writestr(name, "<configuration/>\n")
    return written.rename(jar)


def _jar(settings: Settings) -> Path:
    return settings.jars / "hadoop-defaults.jar"
