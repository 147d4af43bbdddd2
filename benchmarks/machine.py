"""The machine on which figures were taken, and whether it is quiet enough to take any."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import psutil

from de_resources.errors import TransientError
from de_resources.local.jars import engine_jars
from de_resources.local.java import java_executable
from de_resources.settings import Settings

QUIET_LOAD = 1.5
QUIET_OTHERS = 0.1
_PACKAGES = ("pyspark", "dagster", "dagster-delta", "deltalake", "pandera")


class MachineBusy(TransientError):
    """Others are using the machine, so that figures would tell about them."""

    def __init__(self, load: float) -> None:
        self.load = load
        super().__init__(
            f"The load average is {load:.1f}, and above {QUIET_LOAD} figures are not fair. Wait until the machine is "
            "quiet, or measure with --anyway and read the spread."
        )


@dataclass(frozen=True)
class Machine:
    """What a reader has to know to judge the figures of a case. `load` is the one-minute average before the first case.

    `others` is the share of all cores that others used while the case was measured.
    """

    cpu: str
    cores: int
    memory_gib: float
    system: str
    versions: Mapping[str, str]
    date: str
    load: float
    others: float = 0.0

    @property
    def is_quiet(self) -> bool:
        """Whether the figures are fair."""
        return self.load <= QUIET_LOAD and self.others <= QUIET_OTHERS

    @classmethod
    def here(cls, settings: Settings) -> Machine:
        """This machine, now."""
        return cls(
            cpu=_cpu(),
            cores=os.cpu_count() or 1,
            memory_gib=psutil.virtual_memory().total / 2**30,
            system=f"{platform.system()} {platform.machine()}",
            versions={
                "Python": platform.python_version(),
                "Java": _java(),
                "Delta": _delta(settings),
                **{name: version(name) for name in _PACKAGES},
            },
            date=f"{datetime.now(UTC):%Y-%m-%d}",
            load=os.getloadavg()[0],
        )


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or "unknown"


def _java() -> str:
    answer = subprocess.run([java_executable(), "-version"], capture_output=True, text=True, check=True)
    return answer.stderr.split('"')[1]


def _delta(settings: Settings) -> str:
    """From the name of Delta's jar, which ends in its version."""
    names = [jar.stem for jar in engine_jars(settings)]
    return next(name.rsplit("-", 1)[1] for name in names if name.startswith("delta-spark"))
