"""Apache Ivy as a downloader: the copy that ships inside the pyspark wheel, so that no Maven has to be installed.

Ivy's own default resolvers decide where artifacts come from; `DE_IVY_SETTINGS` names an `ivysettings.xml` for a mirror.
"""

from __future__ import annotations

import os
import subprocess
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree as Xml

import pyspark

from de_resources.errors import TransientError
from de_resources.local.java import java_executable

SPARK_JARS = Path(pyspark.__file__).parent / "jars"
_DOWNLOADED = "[SUCCESSFUL ]"


class IvyFailed(TransientError):
    """Ivy could not bring all artifacts: most often no network, or a repository that does not answer."""

    def __init__(self, what: str, last_lines: list[str]) -> None:
        self.what = what
        self.last_lines = last_lines
        tail = "\n  ".join(last_lines)
        super().__init__(
            f"The {what} jars could not be downloaded: check the network and try again, or name an Ivy settings file "
            f"with a reachable mirror in DE_IVY_SETTINGS. Ivy's last lines:\n  {tail}"
        )


@dataclass(frozen=True, order=True)
class Coordinate:
    """One Maven artifact."""

    group: str
    artifact: str
    version: str

    @classmethod
    def parse(cls, text: str) -> Coordinate:
        """Read `group:artifact:version`."""
        group, artifact, version = text.split(":")
        return cls(group, artifact, version)

    @property
    def file_name(self) -> str:
        """The jar's name in every Maven repository."""
        return f"{self.artifact}-{self.version}.jar"

    def __str__(self) -> str:
        return f"{self.group}:{self.artifact}:{self.version}"


def retrieve(
    what: str,
    coordinates: Iterable[Coordinate],
    target: Path,
    cache: Path,
    *,
    transitive: bool = False,
    forced: Iterable[Coordinate] = (),
    on_download: Callable[[], None] = lambda: None,
) -> None:
    """Put the jars of the coordinates into `target`; `on_download` is called after each file that was fetched.

    `cache` keeps what was fetched, so that an interrupted call goes on where it stopped.

    Raises:
        IvyFailed: something could not be resolved or downloaded.
        JavaMissing: there is no Java to run Ivy.
    """
    cache.mkdir(parents=True, exist_ok=True)
    module = cache / f"{what}.xml"
    module.write_bytes(_module_description(what, coordinates, forced, transitive))
    last_lines: deque[str] = deque(maxlen=15)
    with subprocess.Popen(
        _command(module, target, cache), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as ivy:
        for line in ivy.stdout or ():
            if _DOWNLOADED in line:
                on_download()
            elif line.strip(" .\n"):
                last_lines.append(line.rstrip())
    if ivy.returncode != 0:
        raise IvyFailed(what, list(last_lines))


def _command(module: Path, target: Path, cache: Path) -> list[str]:
    (ivy_jar,) = SPARK_JARS.glob("ivy-*.jar")
    settings = os.environ.get("DE_IVY_SETTINGS")
    return [
        *(str(java_executable()), f"-Divy.default.ivy.user.dir={cache}", "-jar", str(ivy_jar)),
        *(("-settings", settings) if settings else ()),
        *("-ivy", str(module), "-cache", str(cache), "-confs", "default"),
        *("-retrieve", str(target / "[artifact]-[revision].[ext]"), "-types", "jar", "bundle"),
    ]


def _module_description(
    what: str, coordinates: Iterable[Coordinate], forced: Iterable[Coordinate], transitive: bool
) -> bytes:
    module = Xml.Element("ivy-module", version="2.0")
    Xml.SubElement(module, "info", organisation="de", module=what)
    Xml.SubElement(Xml.SubElement(module, "configurations"), "conf", name="default")
    dependencies = Xml.SubElement(module, "dependencies")
    for each in coordinates:
        Xml.SubElement(
            dependencies,
            "dependency",
            {"org": each.group, "name": each.artifact, "rev": each.version}
            | {"conf": "default->master,runtime" if transitive else "default->master"}
            | {"transitive": str(transitive).lower(), "force": "true"},
        )
    for each in forced:
        Xml.SubElement(dependencies, "override", org=each.group, module=each.artifact, rev=each.version)
    return Xml.tostring(module)
