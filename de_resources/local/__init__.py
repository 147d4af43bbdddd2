"""The real services on one machine, without containers."""

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
