"""An engine's files on the local disk without a program for each.

Hadoop has no library of its own here, so that it starts `chmod` for each file and folder that it makes, and `readlink` four
times for each commit: five thousand programs for a first fill by `de run`, and six of a hundred CPU seconds of small commits.
`local_files.scala` asks Java instead. PySpark brings a compiler for it, which takes two seconds, once. Files, checksums and
permissions are the same as with Hadoop's own; where it was not made, nothing but time is different.

Source: Hadoop's `RawLocalFileSystem` and `FileUtil`.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

import pyspark

from de_resources.local.java import installed_java
from de_resources.settings import Settings

PYSPARK_JARS = Path(pyspark.__file__).parent / "jars"
_SOURCE = Path(__file__).with_name("local_files.scala")
_COMPILER = ("scala-compiler", "scala-library", "scala-reflect")
_USED = ("scala-library", "hadoop-client-api")
_CLASSES = {
    "spark.hadoop.fs.file.impl": "de_resources.local_files.LocalFiles",
    "spark.hadoop.fs.AbstractFileSystem.file.impl": "de_resources.local_files.LocalFs",
}
_SECONDS = 120


def local_files(settings: Settings) -> list[Path]:
    """What an engine's class path has for it: the jar, if it was made."""
    jar = _jar(settings)
    return [jar] if jar.exists() else []


def local_files_conf(settings: Settings, master: str) -> dict[str, str]:
    """Settings of an engine that computes in its own process. Executors of a cluster do not have the jar."""
    own_process = master == "local" or master.startswith("local[")
    return dict(_CLASSES) if own_process and local_files(settings) else {}


def keep_local_files(settings: Settings) -> Path | None:
    """Make the jar where it is missing, in the place of those of other sources and PySparks, and return it, or None: see
    `made_once`."""
    from de_resources.local.made_jars import made_once  # only where one is made

    return made_once(_jar(settings), _compile, settings.jars.glob("local-files-*.jar"))


def _compile(jar: Path) -> None:
    java = installed_java()
    if java is None:
        raise FileNotFoundError("java")
    command = [str(java), "-XX:TieredStopAtLevel=1", "-cp", _class_path(_COMPILER), "scala.tools.nsc.Main"]
    arguments = ["-cp", _class_path(_USED), "-d", str(jar), str(_SOURCE)]
    subprocess.run([*command, *arguments], capture_output=True, check=True, timeout=_SECONDS)


def _class_path(names: tuple[str, ...]) -> str:
    return os.pathsep.join(map(str, _of_pyspark(names)))


def _of_pyspark(names: tuple[str, ...]) -> list[Path]:
    return [path for name in names for path in sorted(PYSPARK_JARS.glob(f"{name}-[0-9]*.jar"))]


def _jar(settings: Settings) -> Path:
    """Named by what it is made of: another source, or another PySpark, has another one."""
    made_of = _SOURCE.read_bytes() + " ".join(path.name for path in _of_pyspark(_USED)).encode()
    return settings.jars / f"local-files-{hashlib.sha256(made_of).hexdigest()[:16]}.jar"
