"""Hadoop's settings without the defaults of YARN and MapReduce, of which no engine here makes use.

Spark copies all of Hadoop's settings for each query, and sends them with each scan of files: 1,146, of which 721 are these. A
jar in front of Hadoop's own has an empty file in the place of each of their two. It is a jar because the archive of an engine's
classes knows no folders (`class_archive`). Where it was not made, nothing but time is different.

Source: Hadoop's `Configuration`, which takes the first file of a name that the class path has.
"""

from __future__ import annotations

import zipfile
from pathlib import Path

from de_resources.settings import Settings

_REPLACED = ("mapred-default.xml", "yarn-default.xml")


def hadoop_defaults(settings: Settings) -> list[Path]:
    """What stands first on an engine's class path: the jar, if it was made."""
    jar = _jar(settings)
    return [jar] if jar.exists() else []


def keep_hadoop_defaults(settings: Settings) -> Path | None:
    """Make the jar where it is missing, and return it, or None: see `made_once`."""
    from de_resources.local.made_jars import made_once  # only where one is made

    return made_once(_jar(settings), _write)


def _write(jar: Path) -> None:
    with zipfile.ZipFile(jar, "w") as content:
        for name in _REPLACED:
            content.writestr(name, "<configuration/>\n")


def _jar(settings: Settings) -> Path:
    return settings.jars / "hadoop-defaults.jar"
