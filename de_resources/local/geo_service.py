"""What tells the country of a network (`de_resources/local/geo.py`), as a service."""

from __future__ import annotations

from de_resources.local.application_service import ApplicationService


class GeoService(ApplicationService):
    """Remembers what was paid for."""

    name = "geo"
    module = "de_resources.local.geo"
    port_roles = {"client": "DE_GEO_PORT"}  # noqa: RUF012 - a ClassVar by its base
    secret = "geo_token"  # noqa: S105 - the name of one
