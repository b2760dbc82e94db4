import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarm.dht.addresses import Address, may_pass, resolve, split_host_port
from swarm.errors import MisuseError, RemoteProtocolError

ips = st.ip_addresses().map(str)
ports = st.integers(0, 65535)


@given(ips, ports)
def test_packing_is_undone_by_unpacking(host: str, port: int) -> None:
    address = Address.of(host, port)
    assert Address.unpack(address.pack()) == address


@given(st.binary(max_size=40).filter(lambda data: len(data) not in {6, 18}))
def test_other_lengths_do_not_unpack(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        Address.unpack(data)


def test_packed_bytes_are_host_then_port_big_endian() -> None:
    assert Address.of("1.2.3.4", 258).pack() == bytes([1, 2, 3, 4, 1, 2])
    assert Address.of("::1", 1).pack() == bytes(15) + bytes([1, 0, 1])


def test_one_host_has_one_spelling() -> None:
    assert Address.of("2001:DB8:0::1", 1) == Address.of("2001:db8::0001", 1)
    assert str(Address.of("2001:DB8::1", 7423)) == "[2001:db8::1]:7423"
    assert Address.of("fe80::1%3", 1) != Address.of("fe80::1", 1)


@given(ips, st.integers(1, 65535))
def test_printing_is_undone_by_splitting(host: str, port: int) -> None:
    address = Address.of(host, port)
    assert Address.of(*split_host_port(str(address))) == address


@pytest.mark.parametrize(
    "text",
    ["", "host", "host:", ":7423", "host:0", "host:65536", "host:x", "::1:7423", "host:-1", "h:\u0661"],
)
def test_what_is_no_address_is_refused_with_the_remedy(text: str) -> None:
    with pytest.raises(MisuseError, match="HOST:PORT"):
        split_host_port(text)


@pytest.mark.parametrize(
    ("host", "port", "dialable"),
    [
        ("192.168.1.7", 7423, True),
        ("127.0.0.1", 7423, True),
        ("2001:db8::1", 7423, True),
        ("fe80::1%2", 7423, True),
        ("fe80::1", 7423, False),
        ("192.168.1.7", 0, False),
        ("0.0.0.0", 7423, False),
        ("::", 7423, False),
        ("224.0.0.1", 7423, False),
        ("ff02::1", 7423, False),
        ("255.255.255.255", 7423, False),
        ("240.0.0.1", 7423, False),
    ],
)
def test_only_one_host_can_be_dialled(host: str, port: int, dialable: bool) -> None:
    assert Address.of(host, port).is_dialable is dialable


def test_loopback_and_link_local_addresses_are_not_passed_on_to_where_they_mean_another() -> None:
    loopback, public = Address.of("127.0.0.1", 1), Address.of("198.51.100.7", 1)
    assert may_pass(loopback, between=Address.of("::1", 9))
    assert not may_pass(loopback, between=public)
    assert may_pass(public, between=public)
    assert not may_pass(Address.of("fe80::1%2", 1), between=public)


def test_numbers_and_names_resolve() -> None:
    assert asyncio.run(resolve("::1", 5)) == (Address.of("::1", 5),)
    assert Address.of("127.0.0.1", 5) in asyncio.run(resolve("localhost", 5))


@pytest.mark.parametrize("host", ["nowhere.invalid", "a" * 300, "a..b", "\u2603" * 80])
def test_a_name_that_does_not_resolve_says_so(host: str) -> None:
    with pytest.raises(OSError, match=r"."):
        asyncio.run(resolve(host, 5))


@pytest.mark.parametrize(
    ("host", "neighbourhood"),
    [
        ("192.0.2.77", "192.0.2.0/24"),
        ("127.0.0.1", "127.0.0.0/24"),
        ("2001:db8:1:203::3", "2001:db8:1:200::/56"),
        ("fe80::1%eth0", "fe80::/56"),
    ],
)
def test_a_neighbourhood_is_what_one_party_gets(host: str, neighbourhood: str) -> None:
    assert Address.of(host, 1).neighbourhood == neighbourhood
