"""The network of an address: as fine as a country needs it, and too coarse to say who it is."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

LENGTHS = {4: 24, 6: 48}
"""How many bits of an address are kept, by its version."""


def network_of(address: str | None) -> str | None:
    """`198.18.3.7` gives `198.18.3.0/24`, `2001:db8::1` gives `2001:db8::/48`; None for what is no address.

    An IPv4 address in the clothes of IPv6 is taken as what it is.
    """
    try:
        found: IPv4Address | IPv6Address = ip_address((address or "").strip())
    except ValueError:
        return None
    if isinstance(found, IPv6Address):
        if found.ipv4_mapped:
            found = found.ipv4_mapped
        elif found.scope_id:
            found = IPv6Address(int(found))
    return str(ip_network((found, LENGTHS[found.version]), strict=False))


def networks_of(addresses: Iterable[str | None]) -> list[str]:
    """The networks of all addresses, each once, in order."""
    return sorted({network for network in map(network_of, addresses) if network is not None})
