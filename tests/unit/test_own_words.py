"""What libraries and child processes print goes to the log file; what the platform says stays on the terminal."""

import os
import subprocess
import sys
from pathlib import Path

from waiting import PATIENCE

PROGRAM = """
import ctypes, os, subprocess, sys, threading, warnings
from de_assets.cli.terminal import console
from de_assets.cli.own_words import own_words
from de_resources.settings import Settings
console.print("before")
with own_words(Settings.from_environment()) as log:
    console.print("own word")
    print("a library prints")
    sys.stderr.write("a library warns\\n")
    os.write(2, b"a library in C complains\\n")
    subprocess.run(["echo", "a child prints"])
    thread = threading.Thread(target=lambda: print("a thread prints"))
    thread.start()
    thread.join()
    if "fail" in sys.argv:
        raise SystemExit("the end")
console.print("after")
"""
NOISE = ("a library prints", "a library warns", "a library in C complains", "a child prints", "a thread prints")


def said(home: Path, *arguments: str) -> tuple[str, str, str]:
    environment = {**os.environ, "DE_HOME": str(home)}
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE)
    return done.stdout, done.stderr, (home / "logs" / "de.log").read_text()


def test_only_own_words_are_on_the_terminal(tmp_path: Path) -> None:
    output, errors, log = said(tmp_path)
    assert output.split("\n") == ["before", "own word", "after", ""]
    assert errors == ""
    assert sorted(log.splitlines()) == sorted(NOISE)
    assert oct((tmp_path / "logs" / "de.log").stat().st_mode)[-3:] == "600", "it may hold what nobody else should read"


def test_afterwards_errors_are_on_the_terminal_again_and_the_log_goes_on(tmp_path: Path) -> None:
    said(tmp_path)
    output, errors, log = said(tmp_path, "fail")
    assert output.split("\n") == ["before", "own word", ""]
    assert errors == "the end\n"
    assert sorted(log.splitlines()) == sorted(2 * NOISE)
