"""What can happen while a lab runs: cuts, partitions, other rates, frozen and killed hosts, wrong clocks."""

import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest

from swarm.clock import wall
from swarm.errors import FailureError, MisuseError
from swarm.testing.netlab.plugin import StartLab
from swarm.testing.netlab.punctuality import Machine

THREE = """
name = "three"
[[site]]
name = "x"
[[site]]
name = "y"
[[site]]
name = "z"
[[host]]
name = "x"
count = 2
site = "x"
clock = 0
[[host]]
name = "y1"
site = "y"
[[host]]
name = "z1"
site = "z"
"""
SOON = 5.0
NEVER = 0.2
Start = Callable[..., Any]


class Listening:
    """All hosts of a lab, asking each other."""

    def __init__(self, lab: Any, agent: Start) -> None:
        self.lab = lab
        self.agents = {host.name: agent(lab, host.name) for host in lab.lab.hosts}
        self._rounds = itertools.count()
        for one in self.agents.values():
            assert one.ask("udp", "main", 4000) == "ok"

    def hears(self, sender: str, receiver: str, *, wait: float) -> bool:
        address = self.lab.address(receiver, seen_from=sender)
        assert self.agents[sender].ask("send", "main", address, 4000, "hello") == "ok"
        return bool(self.agents[receiver].ask("receive", "main", wait) != "nothing")

    def expect(self, wanted: set[tuple[str, str]]) -> None:
        """Those reach each other, and nobody else does."""
        turn = str(next(self._rounds))
        pairs = [(a, b) for a in self.agents for b in self.agents if a != b]
        for a, b in pairs:
            self.agents[a].ask("send", "main", self.lab.address(b, seen_from=a), 4000, f"{a}:{turn}")
        found = set()
        for b, one in self.agents.items():
            missing = {a for a, receiver in wanted if receiver == b}
            while (answer := one.ask("receive", "main", SOON if missing else NEVER)) != "nothing":
                sender, _, sent = answer.split()[2].partition(":")
                if sent == turn:  # not one that waited for a link to be healed
                    found.add((sender, b))
                    missing.discard(sender)
        assert found == wanted


ALL = {(a, b) for a in ("x1", "x2", "y1", "z1") for b in ("x1", "x2", "y1", "z1") if a != b}


def without(*pairs: tuple[str, str]) -> set[tuple[str, str]]:
    return ALL - set(pairs) - {(b, a) for a, b in pairs}


def test_links_are_cut_and_healed(netlab: StartLab, agent: Start) -> None:
    lab = netlab(THREE)
    hosts = Listening(lab, agent)
    hosts.expect(ALL)
    lab.cut("x1")
    hosts.expect(without(("x1", "x2"), ("x1", "y1"), ("x1", "z1")))
    lab.heal("x1")
    lab.cut("x")
    hosts.expect({("x1", "x2"), ("x2", "x1"), ("y1", "z1"), ("z1", "y1")})
    lab.heal("x")
    lab.cut("x", "y")
    hosts.expect(without(("x1", "y1"), ("x2", "y1")))
    lab.cut("x", "y")
    lab.heal("x", "y")
    hosts.expect(ALL)
    lab.partition(["x", "y"])
    hosts.expect(without(("x1", "z1"), ("x2", "z1"), ("y1", "z1")))
    lab.heal()
    hosts.expect(ALL)


def test_a_cut_stops_what_the_forwarder_carries_too(netlab: StartLab, agent: Start) -> None:
    lab = netlab(THREE + '[[path]]\nbetween = ["x", "y"]\nrtt = "2ms"\n')
    hosts = Listening(lab, agent)
    hosts.expect(ALL)
    lab.partition(["x"], ["y"], ["z"])
    hosts.expect({("x1", "x2"), ("x2", "x1")})
    lab.heal()
    hosts.expect(ALL)


def test_names_that_are_not_there_are_told(netlab: StartLab) -> None:
    lab = netlab(THREE)
    with pytest.raises(MisuseError, match=r"no host or site 'nobody': it has x1, x2, y1, z1, x, y, z"):
        lab.cut("nobody")
    with pytest.raises(MisuseError, match=r"no host 'x'"):
        lab.freeze("x")
    with pytest.raises(MisuseError, match=r"no site 'y1'"):
        lab.partition(["y1"])
    with pytest.raises(MisuseError, match=r"8kbit to 1Tbit"):
        lab.set_rate("x", uplink=1.0)


def test_rates_change_while_a_lab_runs(
    netlab: StartLab, iperf: Start, settled: Start, machine: Machine
) -> None:
    lab = netlab(THREE)

    def check(rate: float) -> None:
        assert lab.lab.rate("x1", "y1") == rate
        found = settled(lambda: iperf(lab, "x1", "y1").rate_on_the_wire(), lambda: machine.rate(rate))
        assert found in machine.rate(rate)

    lab.set_rate("x", uplink=20e6)
    check(20e6)
    lab.set_rate("x", uplink=math.inf)
    lab.set_path_rate("x", "y", 8e6)
    check(8e6)
    lab.set_path_rate("x", "y", math.inf)
    lab.set_rate("y1", downlink=4e6)
    check(4e6)
    lab.set_rate("y1", downlink=math.inf)
    assert lab.lab.rate("x1", "y1") == math.inf
    assert iperf(lab, "x1", "y1", seconds=2).rate() > 200e6


def test_hosts_freeze_thaw_and_die(netlab: StartLab, agent: Start) -> None:
    lab = netlab(THREE)
    hosts = Listening(lab, agent)
    lab.freeze("y1")
    frozen = hosts.agents["y1"]
    frozen.tell("receive", "main", SOON)
    assert hosts.agents["x1"].ask("send", "main", lab.address("y1"), 4000, "while-away") == "ok"
    assert hosts.hears("x1", "z1", wait=SOON)
    state = lab.run("x1", ["cat", f"/proc/{frozen._process.pid}/stat"]).stdout.rpartition(")")[2].split()[0]
    assert state == "T"
    lab.thaw("y1")
    assert frozen.answer().endswith("while-away")
    lab.kill("y1")
    assert frozen._process.wait(10) == -9
    assert hosts.hears("x1", "z1", wait=SOON)


def test_a_hosts_wall_clock_is_moved_and_no_other(netlab: StartLab, agent: Start) -> None:
    lab = netlab(THREE)
    agents = {name: agent(lab, name) for name in ("x1", "x2", "z1")}

    def ahead() -> dict[str, float]:
        return {name: float(one.ask("wall")) - wall() for name, one in agents.items()}

    assert ahead() == pytest.approx({"x1": 0, "x2": 0, "z1": 0}, abs=0.5)
    lab.set_clock("x1", -3600.0)
    assert ahead() == pytest.approx({"x1": -3600, "x2": 0, "z1": 0}, abs=0.5)
    lab.set_clock("x2", 1.5)
    assert ahead() == pytest.approx({"x1": -3600, "x2": 1.5, "z1": 0}, abs=0.5)
    with pytest.raises(FailureError, match=r"give it clock = 0"):
        lab.set_clock("z1", 5.0)


def test_interfaces_say_what_they_carried(netlab: StartLab, agent: Start) -> None:
    lab = netlab(THREE)
    hosts = Listening(lab, agent)
    before = {link.name: link for link in lab.carried() if link.kind == "host"}
    payload = "x" * 1000
    for _ in range(50):
        assert hosts.agents["x1"].ask("send", "main", lab.address("y1"), 4000, payload) == "ok"
        assert hosts.agents["y1"].ask("receive", "main", SOON).endswith(payload)
    carried = {link.name: link.since(before[link.name]) for link in lab.carried() if link.kind == "host"}
    expected = 50 * (1000 + 42)  # and a few questions for addresses
    assert expected <= carried["x1"].sent <= expected + 500
    assert expected <= carried["y1"].received <= expected + 500
    assert carried["z1"].received <= 500
