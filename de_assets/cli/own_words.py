"""What a person reads on the terminal is the platform's own words; what libraries print goes to a file."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from de_assets.cli.terminal import console
from de_resources.settings import Settings

LOG_NAME = "de.log"


def log_path(settings: Settings) -> Path:
    """The file with everything that was not said on the terminal."""
    return settings.home / "logs" / LOG_NAME


@contextmanager
def own_words(settings: Settings) -> Iterator[Path]:
    """Send what this process prints, and what it starts prints, to the home's log, except what `console` says.

    It is done to the file descriptors, so that libraries in C and child processes are caught as well. Threads may print
    meanwhile. Afterwards all is as it was.
    """
    path = log_path(settings)
    path.parent.mkdir(parents=True, exist_ok=True)
    sys.stdout.flush()
    sys.stderr.flush()
    terminal, errors = os.dup(1), os.dup(2)
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    before = console.file
    try:
        os.dup2(log, 1)
        os.dup2(log, 2)
        if _is_descriptor(sys.stdout, 1):
            console.file = os.fdopen(os.dup(terminal), "w", buffering=1, encoding=sys.stdout.encoding)
        yield path
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        if console.file is not before:
            console.file.close()
            console.file = before
        os.dup2(terminal, 1)
        os.dup2(errors, 2)
        for descriptor in (terminal, errors, log):
            os.close(descriptor)


def _is_descriptor(stream: object, number: int) -> bool:
    """Whether a stream writes to this descriptor; a test's replacement of it does not."""
    with suppress(AttributeError, OSError, ValueError):
        return bool(stream.fileno() == number)  # type: ignore[attr-defined]
    return False
