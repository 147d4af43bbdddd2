"""The partner who takes records (`de_resources/local/partner.py`) as a service."""

from __future__ import annotations

from de_resources.local.application_service import ApplicationService


class PartnerService(ApplicationService):
    """Remembers what it has taken."""

    name = "partner"
    module = "de_resources.local.partner"
    port_roles = {"client": "DE_PARTNER_PORT"}  # noqa: RUF012 - a ClassVar by its base
    secret = "partner_token"  # noqa: S105 - the name of one
