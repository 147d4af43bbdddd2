"""Where a service of this home is reached, for those who have its name and nothing else."""

from __future__ import annotations

from de_resources.local.endpoints import Endpoint
from de_resources.settings import Settings


def local_endpoint(settings: Settings, service: str) -> Endpoint | None:
    """Where a service of this home is reached; None where it was not started here or does not take connections."""
    # A code location names its services when it is loaded, and looks for them when something runs.
    from de_resources.local.services import LocalServices

    return LocalServices(settings).endpoint(service)
