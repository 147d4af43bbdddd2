"""Where Java is on this machine, and whether it is new enough for Spark 4 and Kafka 4."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

from de_resources.errors import PermanentError

MINIMUM_VERSION = 17
# Java warns of vfork from here on, and is going to be without it.
_WITHOUT_VFORK = 25
_OPTIONS_OF_ALL = ("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS")
_COMPILERS = "-XX:TieredStopAtLevel="
_COLLECTOR = re.compile(r"-XX:\+Use\w+GC\b")


class JavaMissing(PermanentError):
    """No Java that the engine and the broker can run on."""

    def __init__(self, found: int | None, minimum: int = MINIMUM_VERSION) -> None:
        self.found = found
        self.minimum = minimum
        what = "No Java was found" if found is None else f"Java {found} is too old"
        super().__init__(
            f"{what}: install a JDK {minimum} or newer (Debian and Ubuntu: `apt-get install "
            f"openjdk-{minimum}-jre-headless`), or point JAVA_HOME at one."
        )


def java_executable() -> Path:
    """The `java` of JAVA_HOME, else of the PATH.

    Raises:
        JavaMissing: there is none, or it is older than `MINIMUM_VERSION`.
    """
    found = installed_java()
    if found is None:
        raise JavaMissing(None)
    version = java_version(found)
    if version < MINIMUM_VERSION:
        raise JavaMissing(version)
    return found


def installed_java() -> Path | None:
    """The `java` of JAVA_HOME, else of the PATH, of whatever version; None where there is none. Starts nothing."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home) / "bin") if home else None)
    return Path(found) if found else None


def collector_option(name: str) -> str:
    """The option for a garbage collector (`Parallel`, `Serial` …); empty where the environment names one for all Javas.

    A JVM that is told two does not start.
    """
    return "" if _COLLECTOR.search(_options_of_all()) else f"-XX:+Use{name}GC"


def compiler_options(*options: str) -> str:
    """Options for Java's two compilers; empty where the environment says which of them all Javas have.

    Options that fit both make a program slower for which there is only the first.
    """
    return "" if _COMPILERS in _options_of_all() else " ".join(options)


def _options_of_all() -> str:
    return " ".join(os.environ.get(variable, "") for variable in _OPTIONS_OF_ALL)


def process_option() -> str:
    """The option by which a JVM starts programs without another program between, where its Java can do that; else empty.

    Each program that is started with Java's default has a helper before it: Python workers, and `chmod` and `readlink` where
    Hadoop's own local files are in use (`local_files`), five thousand times for a first fill.
    """
    java = installed_java()
    if sys.platform != "linux" or java is None or not MINIMUM_VERSION <= java_version(java) < _WITHOUT_VFORK:
        return ""
    return "-Djdk.lang.Process.launchMechanism=VFORK"


@cache
def java_version(java: Path) -> int:
    """The feature release of a `java` executable (8, 17, 21 ...); 0 when it does not say."""
    answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=False, timeout=30)
    match = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    return int(match.group(1)) if match else 0
