"""Each kind of NAT and firewall behaves as RFC 4787 describes it, seen from outside with plain sockets."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from swarm.testing.netlab.plugin import StartLab
from swarm.testing.netlab.tools import inside, run

SOON = 5.0
NEVER = 0.4
"""Seconds after which nothing will come any more: the network has no latency."""
HOME = """
name = "nat"
[[site]]
name = "home"
{router}
[[site]]
name = "one"
[[site]]
name = "two"
[[host]]
name = "a"
site = "home"
{forward}
[[host]]
name = "b"
site = "home"
[[host]]
name = "s1"
site = "one"
[[host]]
name = "s2"
site = "two"
"""

KINDS = {
    'nat = "none"': ("no translation", "endpoint-independent"),
    'nat = "none"\nfirewall = "drop-inbound"': ("no translation", "address and port-dependent"),
    'nat = "full-cone"': ("endpoint-independent", "endpoint-independent"),
    'nat = "full-cone"\nfirewall = "drop-inbound"': ("endpoint-independent", "address and port-dependent"),
    'nat = "address-restricted"': ("endpoint-independent", "address-dependent"),
    'nat = "port-restricted"': ("endpoint-independent", "address and port-dependent"),
    'nat = "symmetric"': ("address and port-dependent", "address and port-dependent"),
}
NATS = ["full-cone", "address-restricted", "port-restricted", "symmetric"]
CONES = NATS[:3]

StartAgent = Callable[..., Any]


def home(netlab: StartLab, router: str, forward: str = "") -> Any:
    return netlab(HOME.format(router=router, forward=forward))


def seen(server: Any, client: Any, lab: Any, name: str = "main") -> tuple[str, int]:
    """Where a datagram from the client's socket comes from, as the server's socket ``name`` sees it."""
    port = {"main": 4000, "other": 4001}[name]
    assert client.ask("send", "main", lab.address(server.host), port, "hello") == "ok"
    address, number, text = server.ask("receive", name, SOON).split()
    assert text == "hello"
    return address, int(number)


def servers(lab: Any, agent: StartAgent) -> tuple[Any, Any]:
    found = agent(lab, "s1"), agent(lab, "s2")
    for server in found:
        assert server.ask("udp", "main", 4000) == "ok"
        assert server.ask("udp", "other", 4001) == "ok"
    return found


def comes_in(server: Any, name: str, client: Any, outside: tuple[str, int]) -> bool:
    assert server.ask("send", name, *outside, "knock") == "ok"
    return bool(client.ask("receive", "main", NEVER) != "nothing")


def classify(lab: Any, agent: StartAgent) -> tuple[str, str]:
    """Mapping and filtering in the words of RFC 4787, by the tests of RFC 5780."""
    one, two = servers(lab, agent)
    client = agent(lab, "a")
    assert client.ask("udp", "main", 5000) == "ok"
    first = seen(one, client, lab)
    # Filtering first: only one:4000 has been sent to.
    port, address = comes_in(one, "other", client, first), comes_in(two, "main", client, first)
    assert comes_in(one, "main", client, first)
    filtering = {
        (True, True): "endpoint-independent",
        (True, False): "address-dependent",
        (False, False): "address and port-dependent",
    }[port, address]
    second, third = seen(one, client, lab, "other"), seen(two, client, lab)
    if first == second == third:
        own = (lab.layout.hosts["a"].address, 5000)
        return "no translation" if first == own else "endpoint-independent", filtering
    assert len({first, second, third}) == 3
    return "address and port-dependent", filtering


@pytest.mark.parametrize("router", KINDS)
def test_a_probe_tells_each_kind(netlab: StartLab, agent: StartAgent, router: str) -> None:
    assert classify(home(netlab, router), agent) == KINDS[router]


@pytest.mark.parametrize("nat", CONES)
def test_a_second_host_with_the_same_port_disturbs_no_mapping(
    netlab: StartLab, agent: StartAgent, nat: str
) -> None:
    lab = home(netlab, f'nat = "{nat}"')
    one, two = servers(lab, agent)
    a, b = agent(lab, "a"), agent(lab, "b")
    assert a.ask("udp", "main", 5000) == b.ask("udp", "main", 5000) == "ok"
    of_a, of_b = seen(one, a, lab), seen(two, b, lab)
    assert of_a != of_b
    assert (seen(two, a, lab), seen(one, b, lab)) == (of_a, of_b)
    assert one.ask("send", "main", *of_a, "for-a") == one.ask("send", "main", *of_b, "for-b") == "ok"
    assert a.ask("receive", "main", SOON).split()[2] == "for-a"
    assert b.ask("receive", "main", SOON).split()[2] == "for-b"


@pytest.mark.parametrize("nat", NATS)
def test_connections_are_mapped_as_datagrams_are(netlab: StartLab, agent: StartAgent, nat: str) -> None:
    lab = home(netlab, f'nat = "{nat}"')
    a, found = agent(lab, "a"), []
    for host in ("s1", "s2"):
        server = agent(lab, host)
        assert server.ask("listen", "door", 4000) == "ok"
        assert a.ask("connect", lab.address(host), 4000, 5000, SOON) == "ok"
        found.append(server.ask("accept", "door", SOON))
    assert found[0].split()[0] == found[1].split()[0] == lab.layout.sites["home"].public
    assert (found[0] == found[1]) == (nat in CONES)


@pytest.mark.parametrize("nat", NATS)
def test_a_forwarded_port_is_open_and_others_are_not(netlab: StartLab, agent: StartAgent, nat: str) -> None:
    lab = home(netlab, f'nat = "{nat}"', "forward = [7423]")
    a, one = agent(lab, "a"), agent(lab, "s1")
    public = lab.address("a", seen_from="s1")
    assert a.ask("listen", "door", 7423) == a.ask("udp", "main", 7423) == one.ask("udp", "main", 4000) == "ok"
    assert a.ask("listen", "closed", 7424) == "ok"
    assert one.ask("connect", public, 7423, 0, SOON) == "ok"
    assert a.ask("accept", "door", SOON).split()[0] == lab.address("s1")
    assert one.ask("connect", public, 7424, 0, NEVER) == "nothing"
    assert one.ask("send", "main", public, 7423, "knock") == "ok"
    address, port, _ = a.ask("receive", "main", SOON).split()
    assert a.ask("send", "main", address, port, "answer") == "ok"
    assert one.ask("receive", "main", SOON) == f"{public} 7423 answer"


def test_mappings_last_as_long_as_the_rfc_recommends(netlab: StartLab) -> None:
    lab = home(netlab, 'nat = "symmetric"')
    router = lab.layout.sites["home"].namespace
    folder = Path("/proc/sys/net/netfilter")
    words = ["cat", folder / "nf_conntrack_udp_timeout", folder / "nf_conntrack_udp_timeout_stream"]
    assert run(inside(router, list(map(str, words))), doing="read").split() == ["300", "300"]


@pytest.mark.parametrize(("nat", "meets"), [("port-restricted", True), ("symmetric", False)])
def test_two_homes_can_punch_holes_only_where_mappings_stay(
    netlab: StartLab, agent: StartAgent, nat: str, *, meets: bool
) -> None:
    router = f'nat = "{nat}"'
    text = HOME.format(router=router, forward="").replace('name = "two"\n', f'name = "two"\n{router}\n')
    lab = netlab(text)
    server, left, right = agent(lab, "s1"), agent(lab, "a"), agent(lab, "s2")
    for one in (server, left, right):
        assert one.ask("udp", "main", 4000) == "ok"
    of_left, of_right = seen(server, left, lab), seen(server, right, lab)
    assert left.ask("send", "main", *of_right, "1") == right.ask("send", "main", *of_left, "2") == "ok"
    assert left.ask("send", "main", *of_right, "3") == "ok"
    assert (left.ask("receive", "main", NEVER) != "nothing") == meets
    assert (right.ask("receive", "main", NEVER) != "nothing") == meets
