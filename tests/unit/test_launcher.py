"""What the fork server notices of files, and by what a worker is known again."""

import importlib
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from de_resources.launcher.freshness import recorded
from de_resources.launcher.worker import Worker


@pytest.mark.parametrize(
    ("before", "change"),
    [
        ("a", lambda file: file.write_text("longer")),
        ("a", lambda file: os.utime(file, ns=(1, 1))),
        ("a", Path.unlink),
        (None, lambda file: file.write_text("now it is there")),
    ],
    ids=["longer", "as long, but later", "removed", "absent before"],
)
def test_a_file_that_was_read_and_changes_is_named(
    tmp_path: Path, before: str | None, change: Callable[[Path], object]
) -> None:
    file = tmp_path / "settings.json"
    if before is not None:
        file.write_text(before)
    with recorded() as reads:
        try:
            file.read_text()
        except FileNotFoundError:
            assert before is None
    assert reads.changed() is None
    change(file)
    assert reads.changed() == str(file)


def test_a_module_counts_by_its_source_although_its_compiled_form_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    source = (
        tmp_path / "module_with_a_compiled_form.py"
    )  # by no name that pytest takes for a test, and compiles its own way
    source.write_text("VALUE = 1\n")
    subprocess.run([sys.executable, "-m", "compileall", "-q", str(tmp_path)], check=True)
    with recorded() as reads:
        importlib.import_module(source.stem)
    assert str(source) in reads
    source.write_text("VALUE = 22\n")
    assert reads.changed() == str(source)


def test_what_is_written_or_read_afterwards_does_not_count(tmp_path: Path) -> None:
    with recorded() as reads:
        (tmp_path / "written").write_text("")
    (tmp_path / "written").read_text()
    assert str(tmp_path / "written") not in reads


def test_a_worker_is_known_by_pid_and_start() -> None:
    here = Worker.this_process("run")
    assert here.pid == os.getpid()
    assert here.is_alive
    assert not replace(here, started="another boot/1").is_alive, "the pid was given to somebody else"


def test_a_worker_that_ended_and_is_not_buried_does_not_live() -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    started = Worker.this_process("run").started
    start = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    worker = Worker("run", process.pid, f"{started.partition('/')[0]}/{start[19]}")
    assert worker.is_alive
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert not worker.is_alive
    assert not worker.interrupt()
    process.communicate()
