"""A published version refuses: any writer by its property, everybody but root by its permissions."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError

from de_resources.proxy.seal import remove, seal

pytestmark = pytest.mark.pattern("proxy")

NOBODY = 65534
ROWS = pa.table({"id": [1, 2, 3]})
# Modules are loaded before the account changes: it may not see where they lie.
ATTEMPT = """
import os, sys
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
write_deltalake(sys.argv[2], pa.table({"id": [0]}))
if os.geteuid() == 0:
    os.setgid(int(sys.argv[3])); os.setuid(int(sys.argv[3]))
folder = sys.argv[1]
attempts = {
    "append": lambda: write_deltalake(folder, pa.table({"id": [9]}), mode="append"),
    "replace a file": lambda: os.rename(f"{folder}/_delta_log", f"{folder}/gone"),
    "write into a file": lambda: open(DeltaTable(folder).file_uris()[0], "r+b"),
    "write into the log": lambda: open(f"{folder}/_delta_log/{0:020}.json", "a"),
    "drop": lambda: os.remove(DeltaTable(folder).file_uris()[0]),
}
for name, attempt in attempts.items():
    try:
        attempt()
    except Exception as error:
        print(name, "refused:", " ".join(str(error).split()))
    else:
        print(name, "done")
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A table that belongs to the account that will try to change it."""
    outer = Path(tempfile.mkdtemp(prefix="de-seal-"))
    outer.chmod(0o755)
    table = outer / "version"
    write_deltalake(table, ROWS)
    seal(table)
    if os.geteuid() == 0:
        for place in (table, *table.rglob("*")):
            os.chown(place, NOBODY, NOBODY)
    yield table
    remove(table)
    shutil.rmtree(outer)


def test_the_owner_of_the_files_is_refused(folder: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", ATTEMPT, str(folder), str(tmp_path / "warm"), str(NOBODY)]
    said = subprocess.run(command, check=True, capture_output=True, text=True, cwd="/").stdout.splitlines()
    attempts = ["append", "replace a file", "write into a file", "write into the log", "drop"]
    assert [line.partition(" refused:")[0] for line in said] == attempts
    assert all("ermission denied" in line for line in said)
    assert DeltaTable(folder).to_pyarrow_table() == ROWS


@pytest.mark.parametrize("attempt", ["delete", "overwrite", "update"])
def test_any_delta_writer_is_refused_whoever_asks(folder: Path, attempt: str) -> None:
    attempts = {
        "delete": lambda: DeltaTable(folder).delete("id = 1"),
        "update": lambda: DeltaTable(folder).update({"id": "7"}),
        "overwrite": lambda: write_deltalake(folder, pa.table({"id": [9]}), mode="overwrite"),
    }
    with pytest.raises((DeltaError, OSError)):
        attempts[attempt]()
    assert DeltaTable(folder).to_pyarrow_table() == ROWS


def test_sealing_again_changes_nothing(folder: Path) -> None:
    version = DeltaTable(folder).version()
    assert seal(folder) == version == DeltaTable(folder).version()


def test_a_sealed_version_can_be_removed_and_removed_again(folder: Path) -> None:
    remove(folder)
    remove(folder)
    assert not folder.exists()
