"""The real services on one machine, without containers."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from de_resources.local.endpoints import Endpoint, ServiceState, ServiceStatus, ServiceUnavailable
    from de_resources.local.services import LocalServices, ServicesFailed, ServiceStartFailed
    from de_resources.local.topics import TopicSpec

__all__ = [
    "Endpoint",
    "LocalServices",
    "ServiceStartFailed",
    "ServiceState",
    "ServiceStatus",
    "ServiceUnavailable",
    "ServicesFailed",
    "TopicSpec",
]

_HOMES = {
    "LocalServices": "services",
    "ServicesFailed": "services",
    "ServiceStartFailed": "services",
    "TopicSpec": "topics",
}


def __getattr__(name: str) -> object:
    """Import what is asked for: who wants an address needs no supervisor, no broker's client and no progress bar."""
    if name not in __all__:
        raise AttributeError(name)
    return getattr(import_module(f"de_resources.local.{_HOMES.get(name, 'endpoints')}"), name)
