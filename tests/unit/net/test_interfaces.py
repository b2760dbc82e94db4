"""Which addresses a node tells others."""

import pytest

from swarm.net import interfaces
from swarm.net.interfaces import is_loopback, own_hosts, reachable_hosts


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine at home: one private IPv4 address, one global and one link-local IPv6 address."""
    monkeypatch.setattr(interfaces, "own_hosts", lambda: ("192.168.1.7", "2001:db8::7"))


def test_own_hosts_leave_out_what_nobody_else_can_use() -> None:
    for host in own_hosts():
        assert not host.startswith(("127.", "169.254.", "fe80:"))
        assert host != "::1"


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.1", True), ("127.3.2.1", True), ("::1", True), ("localhost", True), ("192.168.1.7", False)],
)
def test_loopback_is_known_by_number_and_name(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


@pytest.mark.usefixtures("home")
def test_a_node_on_all_interfaces_tells_its_own_addresses() -> None:
    assert reachable_hosts(["0.0.0.0", "::"], ["192.168.1.7"]) == ("192.168.1.7", "2001:db8::7")


@pytest.mark.usefixtures("home")
def test_what_others_saw_is_told_too_since_a_router_may_forward_the_port() -> None:
    assert reachable_hosts(["0.0.0.0"], ["198.51.100.4"]) == ("192.168.1.7", "2001:db8::7", "198.51.100.4")


@pytest.mark.usefixtures("home")
def test_loopback_is_told_where_the_door_is_on_this_machine() -> None:
    assert reachable_hosts(["0.0.0.0"], ["127.0.0.1"]) == ("192.168.1.7", "2001:db8::7", "127.0.0.1")


def test_a_node_on_one_address_tells_that_one() -> None:
    assert reachable_hosts(["192.0.2.3"], []) == ("192.0.2.3",)
    assert reachable_hosts(["127.0.0.1"], ["127.0.0.1"]) == ("127.0.0.1",)


def test_a_machine_without_any_network_still_tells_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interfaces, "own_hosts", lambda: ())
    assert reachable_hosts(["0.0.0.0", "::"], []) == ("127.0.0.1",)
