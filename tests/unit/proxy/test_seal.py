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

from de_resources.proxy.seal import make_immutable, remove

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
    """A table that belongs to the account that will try to change it, where that account may go."""
    outer = Path(tempfile.mkdtemp(prefix="de-seal-", dir="/tmp"))  # TMPDIR may be closed to others
    outer.chmod(0o755)
    table = outer / "version"
    write_deltalake(table, ROWS)
    _give_away(table)
    make_immutable(table)
    yield table
    remove(table)
    shutil.rmtree(outer)


def _give_away(table: Path) -> None:
    if os.geteuid() == 0:
        for place in (table, *table.rglob("*")):
            os.chown(place, NOBODY, NOBODY)


def _attempted(folder: Path, scratch: Path) -> list[str]:
    command = [sys.executable, "-c", ATTEMPT, str(folder), str(scratch / "warm"), str(NOBODY)]
    return subprocess.run(command, check=True, capture_output=True, text=True, cwd="/").stdout.splitlines()


def test_the_owner_of_the_files_is_refused(folder: Path, tmp_path: Path) -> None:
    _give_away(folder)  # the commit of the seal as well
    said = _attempted(folder, tmp_path)
    attempts = ["append", "replace a file", "write into a file", "write into the log", "drop"]
    assert [line.partition(" refused:")[0] for line in said] == attempts
    assert all("ermission denied" in line for line in said)
    assert DeltaTable(folder).to_pyarrow_table() == ROWS


def test_the_owner_could_do_it_before(folder: Path, tmp_path: Path) -> None:
    """Else the refusals above would say nothing about the seal."""
    open_ = folder.parent / "open"
    write_deltalake(open_, ROWS)
    _give_away(open_)
    assert _attempted(open_, tmp_path)[:2] == ["append done", "replace a file done"]


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
    assert make_immutable(folder) == version == DeltaTable(folder).version()


def test_a_sealed_version_can_be_removed_and_removed_again(folder: Path) -> None:
    remove(folder)
    remove(folder)
    assert not folder.exists()
