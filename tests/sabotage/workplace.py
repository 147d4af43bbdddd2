"""A copy of the project in which a defect can be planted, and the environment in which only the copy is imported."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from .defects import PROJECT, Defect

_LEFT_OUT = shutil.ignore_patterns(
    ".*", "__pycache__", "*.egg-info", "build", "dist", "spark-warehouse", "metastore_db"
)


class Workplace:
    """A copy of the project. The developer's own files and data are never touched."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        shutil.copytree(PROJECT, folder, ignore=_LEFT_OUT, dirs_exist_ok=True)

    @property
    def environment(self) -> dict[str, str]:
        """The copy comes before what is installed, which points to the project itself."""
        paths = os.pathsep.join([str(self.folder), str(self.folder / "tests")])
        jars = os.environ.get("DE_JARS", str(PROJECT / ".de" / "jars"))
        # What was compiled is kept, whatever the developer's own environment says: each call of pytest imports the same.
        return {**os.environ, "PYTHONPATH": paths, "DE_JARS": jars, "PYTHONDONTWRITEBYTECODE": ""}

    @contextmanager
    def with_defect(self, defect: Defect) -> Iterator[None]:
        """The defect is in the copy meanwhile."""
        file = self.folder / defect.file
        right = file.read_text(encoding="utf-8")
        _write(file, defect.planted(right))
        try:
            yield
        finally:
            _write(file, right)


def _write(file: Path, text: str) -> None:
    file.write_text(text, encoding="utf-8")
    # Compiled code is told from its source by size and second, which a small defect may keep. Pytest's is beside Python's.
    for compiled in (file.parent / "__pycache__").glob(f"{file.stem}.*.pyc"):
        compiled.unlink()


def is_inside(folder: Path, modules: Mapping[str, str]) -> bool:
    """Whether all these modules' files lie in the copy."""
    return all(Path(file).resolve().is_relative_to(folder.resolve()) for file in modules.values())
