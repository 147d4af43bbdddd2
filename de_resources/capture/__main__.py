"""The capture as a process: `python -m de_resources.capture DECLARATION PORT`.

Relays all sources of the declaration (a JSON list of captures) until SIGTERM, and goes on after every failure that passes:
a database or broker that is away, a table or topic that is not there yet. Takes connections on the loopback port and tells
each, as one line of JSON, how the sources stand; credentials come from the home's secrets and are in no argument.
"""

from __future__ import annotations

import json
import logging
import signal
import socketserver
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Event, Thread

import psycopg2
from confluent_kafka import KafkaException

from de_resources.capture.relay import Capture, Fenced
from de_resources.capture.slot import status
from de_resources.capture.snapshot_pace import SnapshotTooLong
from de_resources.capture.source import CaptureSource, heart_of
from de_resources.errors import PlatformError
from de_resources.heartbeat import Heartbeat
from de_resources.kafka import KafkaBroker, TopicMissing
from de_resources.postgres import PostgresDatabase, RelationMissing

LOOPBACK = "127.0.0.1"
_FIRST_PAUSE, _LONGEST_PAUSE, _FENCED_PAUSE = 0.2, 30.0, 10.0
_TOO_LONG_PAUSE = 3_600.0
"""A snapshot that cannot end reads whole tables for nothing, each time."""
# A pause is about a fifth of the time that it has been failing: who comes back is soon noticed, who stays away is left alone.
_LONGER = 1.25
log = logging.getLogger("capture")


class _Teller(socketserver.ThreadingTCPServer):
    """Says how it goes to whoever connects."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, port: int, said: dict[str, str]) -> None:
        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                self.request.sendall(json.dumps(said).encode() + b"\n")

        super().__init__((LOOPBACK, port), Handler)


def main(declaration: str, port: str) -> None:
    """Relay until asked to stop."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    sources = [CaptureSource(**{**d, "tables": tuple(d["tables"])}) for d in json.loads(Path(declaration).read_text())]
    stopping, said = Event(), dict.fromkeys((source.name for source in sources), "starting")
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    with _Teller(int(port), said) as teller, ThreadPoolExecutor(max(len(sources), 1)) as pool:
        Thread(target=teller.serve_forever, daemon=True).start()
        for source in sources:
            pool.submit(keep_relaying, source, stopping, said).add_done_callback(
                partial(_ended, source, stopping, said)
            )
        stopping.wait()
        teller.shutdown()


def _ended(source: CaptureSource, stopping: Event, said: dict[str, str], done: Future[None]) -> None:
    """A source that ends while the others go on says so: nobody relays it any more."""
    if not stopping.is_set():
        error = done.exception()
        said[source.name] = f"dead: {type(error).__name__ if error else 'it ended'}"
        log.error("%s: %s", source.name, said[source.name], exc_info=error)


def keep_relaying(source: CaptureSource, stopping: Event, said: dict[str, str]) -> None:
    """Run the capture again after each failure, with growing pauses, until stopped.

    One that was fenced waits longer: who took over reads the slot, and as long as it does this one leaves it alone
    (`SlotInUse`). Nobody may have, for a broker fences a producer that it did not hear of for too long.
    """
    pause, told = _FIRST_PAUSE, ""

    def started() -> None:
        # Not before: one that fails at each start must not say in between that it relays.
        said[source.name] = "relaying"

    while not stopping.is_set():
        try:
            Capture(PostgresDatabase(), KafkaBroker(), source).run(stopping.is_set, started)
        except Fenced as end:
            now, wait = f"waiting: {end}", _FENCED_PAUSE
        except SnapshotTooLong as end:
            now, wait = f"waiting: {end}", _TOO_LONG_PAUSE
        except (RelationMissing, TopicMissing) as failure:
            # Before the first row there is nothing to miss; afterwards, there is.
            word = "waiting" if _has_begun(source) else "expecting"
            now, wait = f"{word}: {' '.join(str(failure).split())}", pause
            pause = min(pause * _LONGER, _LONGEST_PAUSE)
        except (PlatformError, psycopg2.Error, KafkaException) as failure:
            now, wait = f"waiting: {' '.join(str(failure).split())}", pause
            pause = min(pause * _LONGER, _LONGEST_PAUSE)
        except Exception as failure:
            # One source that fails in a way that nobody thought of must not end unseen beside the others.
            log.exception("%s", source.name)
            now, wait = f"failed: {type(failure).__name__}, see the log of the capture", _FENCED_PAUSE
        else:
            pause, told = _FIRST_PAUSE, ""
            continue
        # The same line after every pause would hide what changed.
        if now != told:
            log.warning("%s: %s", source.name, now)
        said[source.name] = told = now
        stopping.wait(wait)
    # Also where database and broker were stopped before, so that the relay itself ended by an error.
    Heartbeat(heart_of(source)).stop()


def _has_begun(source: CaptureSource) -> bool:
    """Whether it has a slot; also where nobody can be asked."""
    try:
        return status(PostgresDatabase(), source) is not None
    except (PlatformError, psycopg2.Error):
        return True


if __name__ == "__main__":
    main(*sys.argv[1:])
