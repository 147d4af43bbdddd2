"""Where the engine's classes lie as the JVM has them once they are loaded (AppCDS): the next one maps the file into memory.

Finding, reading and verifying some fifteen thousand classes is a third of what an engine does before its first commit.
The archive belongs to one Java, to PySpark's own jars and to the engine's; its name says so, and the JVM looks again. Where
there is none, or none that fits, classes are loaded as ever: nothing but time depends on it. `de_resources/loaded_classes.py`
makes it.

The JVM keeps classes of its class path only, and none that a loader of Spark's own has read: Delta's jars are on the engine's
class path (`engine_conf`).

Source: JEP 310 and JEP 350 (dynamic archives).
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from de_resources.local.hadoop_defaults import hadoop_defaults
from de_resources.local.java import installed_java
from de_resources.local.local_files import PYSPARK_JARS, local_files
from de_resources.settings import Settings


def class_archive(settings: Settings) -> Path | None:
    """The archive of this Java, this PySpark and these jars, whether it was made or not; None without a Java."""
    java = installed_java()
    if java is None:
        return None
    # What the JVM compares as well: a jar that was installed again is another one to it.
    jars = [
        *PYSPARK_JARS.iterdir(),
        *hadoop_defaults(settings),
        *local_files(settings),
        *(settings.jars / "engine").glob("*.jar"),
    ]
    parts = [_known(java.resolve()), *map(_known, jars)]
    name = hashlib.sha256("\n".join(sorted(parts)).encode()).hexdigest()[:16]
    return settings.jars / "classes" / f"engine-{name}.jsa"


def archive_options(settings: Settings) -> str:
    """Options of the engine's JVM: to use the archive, without a word where it does not fit; none where it was not made."""
    archive = class_archive(settings)
    return f'"-XX:SharedArchiveFile={archive}" -Xlog:cds*=off' if archive and archive.exists() else ""


def _known(path: Path) -> str:
    found = path.stat()
    return f"{path} {found.st_size} {found.st_mtime_ns}"
