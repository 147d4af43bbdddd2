"""Which processes are ours: by the mark in their environment, never by a pid."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
from processes import living
from waiting import PATIENCE

from de_resources.local.processes import MARKER, marked, memory_bytes, stop_all, works_in

STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
)
PARENT = "import subprocess, time; subprocess.Popen(['sleep', '600'], env={}); print('up', flush=True); time.sleep(600)"


def test_only_marked_processes_and_their_descendants_are_stopped(tmp_path: Path) -> None:
    parent = _start(PARENT, tmp_path)
    other_home = _start(PARENT, tmp_path / "other")
    process = psutil.Process(parent.pid)
    children = process.children()
    try:
        assert [found.pid for found in marked(tmp_path)] == [parent.pid]

        assert stop_all(tmp_path) == 2

        assert len(children) == 1
        assert not living([process, *children])
        assert other_home.poll() is None
    finally:
        stop_all(tmp_path / "other")
        _close(parent, other_home)


def test_a_process_that_ignores_the_polite_signal_is_killed(tmp_path: Path) -> None:
    stubborn = _start(STUBBORN, tmp_path)
    process = psutil.Process(stubborn.pid)

    stop_all(tmp_path, grace=0.3)

    assert not living([process])
    _close(stubborn)


def test_memory_and_folder_of_a_process(tmp_path: Path) -> None:
    assert (memory_bytes(os.getpid()) or 0) > 1_000_000
    assert works_in(os.getpid(), Path.cwd())
    assert not works_in(os.getpid(), tmp_path)

    with subprocess.Popen(["true"]) as ended:
        ended.wait()
    assert memory_bytes(ended.pid) is None
    assert not works_in(ended.pid, Path.cwd())


def _start(program: str, home: Path) -> subprocess.Popen[str]:
    environment = os.environ | {MARKER: str(home)}
    process = subprocess.Popen([sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    return process


def _close(*processes: subprocess.Popen[str]) -> None:
    for process in processes:
        process.wait(PATIENCE)
        if process.stdout:
            process.stdout.close()
