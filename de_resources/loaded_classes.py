"""Makes the archive of the engine's classes (`de_resources/local/class_archive.py`): once, when the jars are fetched.

An engine is started, warmed by a session of its own and by one over Spark Connect, and ends; while it ends it writes down
which classes it had loaded. That takes half a minute, and about 200 MB of disk.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from uuid import uuid4

from filelock import FileLock

from de_resources.engine.warming import warm
from de_resources.local.class_archive import class_archive
from de_resources.local.engine_conf import REDACTED_LOG
from de_resources.local.ports import LOOPBACK, any_free
from de_resources.settings import Settings
from de_resources.spark import open_session

_SECONDS = 300
_TOKEN = "SPARK_CONNECT_AUTHENTICATE_TOKEN"  # noqa: S105 - the variable's name


def keep_loaded_classes(settings: Settings) -> Path | None:
    """Make the archive where it is missing, remove those of other Javas and PySparks, and return it.

    None where it could not be made, which is no error: engines start without it. A rerun does nothing. Two processes that ask
    at once wait for each other.
    """
    archive = class_archive(settings)
    if archive is None or archive.exists():
        return archive
    try:
        archive.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(archive.parent / ".lock"):
            return archive if archive.exists() else _made(settings, archive)
    except (OSError, subprocess.TimeoutExpired):
        return None


def _made(settings: Settings, archive: Path) -> Path | None:
    with tempfile.TemporaryDirectory(dir=archive.parent) as work:
        written = Path(work) / archive.name
        # Its Java writes the archive after it, and holds its output open until then.
        subprocess.run(
            [sys.executable, "-m", __name__, str(written), work],
            env={**os.environ, "DE_HOME": work, "DE_JARS": str(settings.jars), _TOKEN: uuid4().hex},
            capture_output=True,
            check=False,
            timeout=_SECONDS,
        )
        if not written.exists():
            return None
        for old in archive.parent.glob("*.jsa"):
            old.unlink()
        return written.rename(archive)


def _load(written: Path, work: Path) -> None:
    """What engines load, in an engine of this process, with a Connect server inside; it ends with the process."""
    port = any_free()
    conf = {
        "spark.driver.extraJavaOptions": f'"-XX:ArchiveClassesAtExit={written}" {REDACTED_LOG}',
        "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
        "spark.connect.grpc.binding.address": LOOPBACK,
        "spark.connect.grpc.binding.port": str(port),
    }
    session = open_session("local[1]", conf)
    warm(session, work / "own")
    # A process has sessions of one kind only.
    client = [
        sys.executable,
        "-m",
        __name__,
        f"sc://localhost:{port}/;token={os.environ[_TOKEN]}",
        str(work / "connect"),
    ]
    subprocess.run(client, check=False, timeout=_SECONDS / 2)
    session.stop()


if __name__ == "__main__":
    where, scratch = sys.argv[1], Path(sys.argv[2])
    if where.startswith("sc://"):
        warm(open_session(where), scratch)
    else:
        _load(Path(where), scratch)
