"""Giving a program to an unprivileged account when root calls, also below folders that the account may not enter.

A home such as `/root/…` or one made by `mktemp -d` lies below folders with mode 0700. Their modes stay as they are:
the program keeps one capability, to pass and read such folders, and can gain no other.
"""

from __future__ import annotations

import pwd
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

_PASSAGE = "dac_read_search"


def closed_folder(place: Path, account: str) -> Path | None:
    """The folder nearest to `place` through which the account may not pass; None: it can get there."""
    uid = pwd.getpwnam(account).pw_uid
    for folder in place.resolve().parents:
        if folder.exists():
            status = folder.stat()
            if not status.st_mode & (0o100 if status.st_uid == uid else 0o001):
                return folder
    return None


def with_passage(account: str, command: Sequence[str]) -> list[str]:
    """The command that root runs instead: as the account, able to pass closed folders, and to nothing else."""
    group = str(pwd.getpwnam(account).pw_gid)
    capability = f"-all,+{_PASSAGE}"
    return [
        *("setpriv", f"--reuid={account}", f"--regid={group}", "--clear-groups", "--no-new-privs"),
        # Otherwise access(2), with which PostgreSQL looks for its programs, ignores what a process may by capability.
        "--securebits=+no_setuid_fixup",
        *(f"--inh-caps={capability}", f"--ambient-caps={capability}", f"--bounding-set={capability}", "--"),
        *command,
    ]


def can_grant_passage(account: str) -> bool:
    """Whether this process can hand the capability on: root in a container often cannot, and not every system can."""
    setpriv = shutil.which("setpriv")
    return setpriv is not None and _granted(setpriv, account)


@cache
def _granted(setpriv: str, account: str) -> bool:
    command = [setpriv, *with_passage(account, ["true"])[1:]]
    return subprocess.run(command, capture_output=True, check=False, timeout=30).returncode == 0
