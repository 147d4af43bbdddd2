"""Where events go: one file per day under the home, or wherever the environment says.

| variable              | events go to                                                              |
|-----------------------|---------------------------------------------------------------------------|
| `OPENLINEAGE_CONFIG`  | what that file of the OpenLineage client says (several, Kafka, …)         |
| `OPENLINEAGE_URL`     | that address by HTTP, with `OPENLINEAGE_API_KEY`; one attempt of two seconds each |
| neither               | `$DE_HOME/openlineage/events-<day>.jsonl`, one event a line               |

An event that a listener refuses for good goes to `refused-<day>.jsonl` there.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import date
from pathlib import Path

from openlineage.client import OpenLineageClient
from openlineage.client.transport.file import FileConfig, FileTransport
from openlineage.client.transport.http import HttpConfig, HttpTransport
from requests import HTTPError

SECONDS = 2.0
"""How long one event may take. A listener that is away is tried again by the next relay."""
_REFUSALS = frozenset({400, 413, 422})
"""Malformed, too large, not to be processed."""


def client_of(folder: Path, today: date, environment: Mapping[str, str] = os.environ) -> OpenLineageClient:
    """The client of this environment. Makes the folder where events go to files."""
    if environment.get("OPENLINEAGE_CONFIG"):
        return OpenLineageClient()
    url = environment.get("OPENLINEAGE_URL")
    if url:
        key = environment.get("OPENLINEAGE_API_KEY")
        options = {"url": url, "timeout": SECONDS, "retry": {"total": 0, "connect": 0, "read": 0}}
        auth = {"auth": {"type": "api_key", "apiKey": key}} if key else {}
        return OpenLineageClient(transport=HttpTransport(HttpConfig.from_dict({**options, **auth})))
    return files(folder, "events", today)


def files(folder: Path, name: str, today: date) -> OpenLineageClient:
    """The client that writes into one file per day. Makes the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    file = FileConfig(log_file_path=str(folder / f"{name}-{today.isoformat()}.jsonl"), append=True)
    return OpenLineageClient(transport=FileTransport(file))


def is_refusal(error: Exception) -> bool:
    """Whether a listener takes this event never, because of what it holds. A wrong address or key is not the event's fault."""
    return isinstance(error, HTTPError) and error.response is not None and error.response.status_code in _REFUSALS
