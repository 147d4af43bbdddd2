"""Makes sessions of a stream in a process and an engine of its own, and is killed with both in the middle of a batch.

Usage: sessions_client.py FOLDER. The visits are in FOLDER/visits, the sessions go to FOLDER/found.
"""

import os
import signal
import sys
from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar

from de_assets.transforms.data_value.closing_rules import ClosingRule, Inactivity, OpenSession
from de_assets.transforms.data_value.stateful_sessionizer import STATE_SETTINGS, Arrival, stream_sessions
from de_resources.delta.table import CommitInfo, Table
from de_resources.delta.write.stream import run_available_now
from de_resources.spark import SparkEngine

GAP = timedelta(minutes=30)
ARRIVAL = Arrival(late=timedelta(minutes=30), skew=timedelta(minutes=5))
FATAL = "the page that kills"


def killing(*processes: int) -> ClosingRule:
    """A rule that kills these processes when it comes to a page: sessions before it are found, none of them is committed."""

    @dataclass(frozen=True)
    class Killing:
        """Workers cannot import this module: a class that is local goes to them as it is."""

        name: ClassVar[str] = "killing"

        def over_at(self, session: OpenSession) -> int | None:
            if session.last_page == FATAL:
                for process in processes:
                    os.kill(process, signal.SIGKILL)
            return None

    return Killing()


def main(folder: str) -> None:
    """One run."""
    session = SparkEngine(url="local[2]", spark_config={"spark.sql.shuffle.partitions": "2"}).spark_session
    java = session.sparkContext._jvm.java.lang.ProcessHandle.current().pid()
    rules = (Inactivity(GAP), killing(java, os.getpid()))
    visits = session.readStream.format("delta").load(f"{folder}/visits")
    stamp = CommitInfo("gold.found", "found", "all", "1", "1", "1")
    found = stream_sessions(visits, rules, ARRIVAL)
    run_available_now(session, Table("gold.found", f"{folder}/found"), found, stamp, settings=STATE_SETTINGS)


if __name__ == "__main__":
    main(sys.argv[1])
