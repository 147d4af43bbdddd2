"""Where this machine keeps the platform's files, read from the environment once per call.

| variable          | meaning                                                             | default            |
|-------------------|---------------------------------------------------------------------|--------------------|
| `DE_HOME`         | everything that services and the platform keep on this machine      | `.de`              |
| `LAKE_ROOT`       | root of the tables: a folder                                        | `$DE_HOME/lake`    |
| `DE_STAGING_ROOT` | root of the staging environment, which holds replicas only          | `$DE_HOME/staging` |
| `DE_JARS`         | cache of the engine's and the broker's jars                         | `$DE_HOME/jars`    |
| `DE_SPARK`        | `sc://host:port`, `spark://host:port`, `local[n]`; unset: automatic | unset              |
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from de_resources.errors import PermanentError

ROOTS = ("LAKE_ROOT", "DE_STAGING_ROOT")
"""The variables that say where tables are."""


class ObjectStoreUnsupported(PermanentError):
    """A root of tables that is not a folder of this machine."""

    def __init__(self, variable: str, scheme: str) -> None:
        self.variable, self.scheme = variable, scheme
        super().__init__(
            f"`{variable}` is a place at `{scheme}://`, and the platform keeps its tables in folders only: the engine has no "
            "connector for object stores, and no statement gets their credentials. Set it to a folder, or run "
            f"`unset {variable}`."
        )


@dataclass(frozen=True)
class Settings:
    """The platform's places. Removing `home` gives a fresh start."""

    home: Path
    lake_root: str
    staging_root: str
    jars: Path
    spark: str | None = None

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Settings:
        """Read the variables of the module's table; relative folders are resolved against the working directory.

        Raises `ObjectStoreUnsupported`.
        """
        env = os.environ if environment is None else environment
        home = Path(env.get("DE_HOME") or ".de").expanduser().resolve()
        lake_root, staging_root = (
            _root(name, env.get(name) or str(home / folder))
            for name, folder in zip(ROOTS, ("lake", "staging"), strict=True)
        )
        jars = Path(env.get("DE_JARS") or home / "jars").expanduser().resolve()
        spark = env.get("DE_SPARK") or None
        return cls(home=home, lake_root=lake_root, staging_root=staging_root, jars=jars, spark=spark)

    def uri_of(self, dataset: str) -> str:
        """Where the files of `layer/dataset` are: what is called staging in the staging environment, all others in the lake."""
        root = self.staging_root if dataset.startswith("staging/") else self.lake_root
        return f"{root}/{dataset}"

    @property
    def secrets(self) -> Path:
        """Folder of generated credentials, one file each, readable by the owner only."""
        return self.home / "secrets"

    @property
    def logs(self) -> Path:
        """Folder of the services' logs."""
        return self.home / "logs"

    @property
    def dagster_home(self) -> Path:
        """Dagster's own storage: runs, events, schedules."""
        return self.home / "dagster"

    @property
    def landing(self) -> Path:
        """Folder into which producers drop files."""
        return self.home / "landing"


def is_folder(root: str) -> bool:
    """Whether a root is a folder of this machine, by its path or as `file://`."""
    return "://" not in root or root.startswith("file://")


def _root(variable: str, root: str) -> str:
    if not is_folder(root):
        raise ObjectStoreUnsupported(variable, root.split("://")[0])
    return root.rstrip("/") if "://" in root else str(Path(root).expanduser().resolve())
