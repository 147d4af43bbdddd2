"""Where events go: one file per day under the home, or wherever the environment says.

| variable              | events go to                                                              |
|-----------------------|---------------------------------------------------------------------------|
| `OPENLINEAGE_CONFIG`  | what that file of the OpenLineage client says (several, Kafka, …)         |
| `OPENLINEAGE_URL`     | that address by HTTP, with `OPENLINEAGE_API_KEY`; one attempt of two seconds each |
| neither               | `$DE_HOME/openlineage/events-<day>.jsonl`, one event a line               |

An event that a listener refuses for good goes to `refused-<day>.jsonl` there. A variable that names no listener is an error
that says so, where the client would print the events on the terminal or stop whoever made it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from urllib.parse import urlsplit

from openlineage.client import OpenLineageClient
from openlineage.client.transport.console import ConsoleTransport
from openlineage.client.transport.file import FileConfig, FileTransport
from openlineage.client.transport.http import HttpConfig, HttpTransport
from requests import HTTPError

from de_resources.errors import PermanentError

CONFIG, URL = "OPENLINEAGE_CONFIG", "OPENLINEAGE_URL"
SECONDS = 2.0
"""How long one event may take. A listener that is away is tried again by the next relay."""
_REFUSALS = frozenset({400, 413, 422})
"""Malformed, too large, not to be processed."""


class UnusableListener(PermanentError):
    """Where events are to go, and cannot: a variable that names no listener, or a folder that is none."""

    def __init__(self, what: str, why: str, remedy: str) -> None:
        self.what, self.why, self.remedy = what, why, remedy
        super().__init__(f"{what} {why}. {remedy} Until then the events wait.")

    @classmethod
    def of(cls, variable: str, why: str) -> UnusableListener:
        """What a variable says, without saying it: an address may hold a password."""
        return cls(f"`{variable}`", why, f"Correct it, or run `unset {variable}`.")


def client_of(folder: Path, today: date, environment: Mapping[str, str] = os.environ) -> OpenLineageClient:
    """The client of this environment. Makes the folder where events go to files. Raises `UnusableListener`."""
    if environment.get(CONFIG):
        return _configured(Path(environment[CONFIG]))
    url = environment.get(URL)
    if url:
        address = urlsplit(url.strip())
        if address.scheme not in ("http", "https") or not address.hostname:
            raise UnusableListener.of(URL, "is no address such as http://host:5000")
        key = environment.get("OPENLINEAGE_API_KEY")
        options = {"url": url, "timeout": SECONDS, "retry": {"total": 0, "connect": 0, "read": 0}}
        auth = {"auth": {"type": "api_key", "apiKey": key}} if key else {}
        return OpenLineageClient(transport=HttpTransport(HttpConfig.from_dict({**options, **auth})))
    return files(folder, "events", today)


def files(folder: Path, name: str, today: date) -> OpenLineageClient:
    """The client that writes into one file per day. Makes the folder."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UnusableListener(
            f"The folder {folder}", f"cannot be made ({type(error).__name__})", "Make room there, or set `DE_HOME`."
        ) from None
    file = FileConfig(log_file_path=str(folder / f"{name}-{today.isoformat()}.jsonl"), append=True)
    return OpenLineageClient(transport=FileTransport(file))


def _configured(file: Path) -> OpenLineageClient:
    # The client takes a file that is not there for none, and prints the events.
    if not file.is_file() or not os.access(file, os.R_OK):
        raise UnusableListener.of(CONFIG, "names no file that can be read")
    try:
        client = OpenLineageClient()
        wanted = (client.config.transport or {}).get("type")
    except Exception as error:  # noqa: BLE001 - whatever the client meets in the file
        raise UnusableListener.of(CONFIG, f"names a file that makes no client ({type(error).__name__})") from None
    if client.transport.kind == ConsoleTransport.kind and wanted != ConsoleTransport.kind:
        raise UnusableListener.of(CONFIG, "names a file without a `transport` of some `type`")
    return client


def is_refusal(error: Exception) -> bool:
    """Whether a listener takes this event never, because of what it holds. A wrong address or key is not the event's fault."""
    return isinstance(error, HTTPError) and error.response is not None and error.response.status_code in _REFUSALS
