"""The network of an address, by hand."""

import pytest

from de_assets.transforms.data_value.networks import network_of, networks_of

pytestmark = pytest.mark.pattern("static_joiner")


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("198.18.3.7", "198.18.3.0/24"),
        (" 198.18.3.255 ", "198.18.3.0/24"),
        ("2001:db8:1:2::9", "2001:db8:1::/48"),
        ("2001:DB8::1", "2001:db8::/48"),
        ("fe80::1%eth0", "fe80::/48"),
        ("::ffff:198.18.3.7", "198.18.3.0/24"),
        ("198.18.3", None),
        ("198.18.3.0/24", None),
        ("256.1.1.1", None),
        ("unknown", None),
        ("", None),
        (None, None),
    ],
)
def test_the_network_of_an_address(address: str | None, network: str | None) -> None:
    assert network_of(address) == network


def test_each_network_once_and_in_order() -> None:
    assert networks_of(["10.0.1.9", None, "10.0.0.1", "10.0.1.2", "?"]) == ["10.0.0.0/24", "10.0.1.0/24"]
