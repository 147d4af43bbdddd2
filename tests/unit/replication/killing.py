"""A process that kills itself in the middle of a replication."""

from __future__ import annotations

import os
import subprocess
import sys

_PROGRAM = """
import os, signal
from pathlib import Path
real, left = Path.{method}, {calls}
def counted(self, *args, **kwargs):
    global left
    left -= 1
    if not left:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(self, *args, **kwargs)
Path.{method} = counted
{statement}
"""


def killed_at(method: str, calls: int, statement: str) -> int:
    """Run the statement in a process that kills itself before its n-th call of a method of `Path`; its exit status."""
    program = _PROGRAM.format(method=method, calls=calls, statement=statement)
    return subprocess.run([sys.executable, "-c", program], env=os.environ, timeout=180).returncode
