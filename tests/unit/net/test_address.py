"""Addresses: what is one, how it is written back, and who its neighbours are."""

import pytest

from swarm.errors import MisuseError
from swarm.net.address import Address


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("192.0.2.1:7423", "192.0.2.1", 7423),
        (" example.org:1 ", "example.org", 1),
        ("[2001:db8::1]:65535", "2001:db8::1", 65535),
        ("[fe80::1%eth0]:7423", "fe80::1%eth0", 7423),
    ],
)
def test_an_address_is_read_and_written_back(text: str, host: str, port: int) -> None:
    address = Address.parse(text)
    assert address == Address(host, port)
    assert str(address) == text.strip()


@pytest.mark.parametrize(
    "text",
    ["", "host", ":7423", "host:", "host:0", "host:65536", "host:7x", "2001:db8::1:7423", "[]:1", "host:٣"],
)
def test_anything_else_is_refused_with_the_remedy(text: str) -> None:
    with pytest.raises(MisuseError, match=r"is not an address: write HOST:PORT, or \[HOST\]:PORT for IPv6"):
        Address.parse(text)


@pytest.mark.parametrize(
    ("host", "neighbourhood"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("somewhere", "somewhere"),
    ],
)
def test_neighbours_are_those_whom_one_stranger_could_be(host: str, neighbourhood: str) -> None:
    assert Address(host, 1).neighbourhood == neighbourhood


@pytest.mark.parametrize(
    ("host", "is_loopback"), [("127.0.0.1", True), ("::1", True), ("10.0.0.1", False), ("x", False)]
)
def test_loopback_is_told_apart(host: str, is_loopback: bool) -> None:
    assert Address(host, 1).is_loopback is is_loopback
