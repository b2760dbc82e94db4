"""What this machine can give labs, and the refusal of one that asks for more."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from math import isfinite
from typing import Final

import psutil

from swarm.errors import FailureError
from swarm.testing.netlab.forwarder import CAPACITY
from swarm.testing.netlab.schema import Host, Lab, Site
from swarm.testing.netlab.units import format_rate

TRIED: Final = 1e9
"""Bits a second up to which the tests of netlab hold rates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What there is in all."""

    cores: int
    memory: int


def this_machine() -> Machine:
    """The machine that this runs on, as far as this process may use it."""
    return Machine(cores=len(os.sched_getaffinity(0)), memory=psutil.virtual_memory().total)


def check_fits(lab: Lab, machine: Machine, others: Iterable[Lab] = ()) -> None:
    """Raise FailureError where ``lab`` cannot be what it says on ``machine``, beside ``others`` that run."""
    for host in lab.hosts:
        if host.device != "cpu":
            raise FailureError(
                f"host {host.name} computes on {host.device!r}, and netlab can only share out the cpu: "
                "this description is for planning"
            )
    running = list(others)
    beside = f", beside {', '.join(other.name for other in running)}" if running else ""
    cores = machine.cores - sum(_cores(other) for other in running)
    if _cores(lab) > cores + 1e-9:
        raise FailureError(
            f"{lab.name} asks for {_cores(lab):g} cores, and this machine has {max(0.0, cores):g}{beside}: "
            "lower cpu of its hosts"
        )
    memory = machine.memory - sum(_memory(other) for other in running)
    if _memory(lab) > memory:
        raise FailureError(
            f"{lab.name} asks for {_memory(lab) / 2**30:.1f} GiB of memory, and this machine has "
            f"{max(0, memory) / 2**30:.1f} GiB{beside}: lower memory of its hosts"
        )
    check_rates(lab)


def check_rates(lab: Lab) -> None:
    """Raise FailureError where what goes through the forwarder is to be faster than it."""
    for sender, receiver in _forwarded(lab):
        rate = _rate_across(lab, sender, receiver)
        if isfinite(rate) and rate > CAPACITY:
            raise FailureError(
                f"{receiver} has a path with latency or loss, so all it is sent passes netlab's forwarder, "
                f"which carries {format_rate(CAPACITY)}, and {sender} may send it {format_rate(rate)}: "
                "lower a rate, or leave out rtt, jitter and loss"
            )


def notes(lab: Lab, machine: Machine) -> list[str]:
    """What whoever measures in this lab should know, a line each."""
    found = []
    if _cores(lab) > machine.cores - 0.5:
        found.append(
            f"hosts may use {_cores(lab):g} of {machine.cores} cores: traffic is work of the kernel, "
            "and takes from that"
        )
    fastest = max((rate for rate in _rates(lab) if rate is not None), default=0.0)
    if fastest > TRIED:
        found.append(
            f"a rate is {format_rate(fastest)}: rates are tried up to {format_rate(TRIED)}, and above that a "
            "link is as fast as this machine's kernel"
        )
    rates = [_rate_across(lab, *pair) for pair in _forwarded(lab)]
    together = _together(lab)
    if any(not isfinite(rate) for rate in rates):
        found.append(
            "a path with latency or loss has no rate: it is as fast as the forwarder, "
            f"some {format_rate(CAPACITY)}"
        )
    elif together > CAPACITY:
        found.append(
            f"{format_rate(together)} may pass the forwarder at once, and it is trusted with "
            f"{format_rate(CAPACITY)}: status shows what it dropped"
        )
    return found


def _rates(lab: Lab) -> list[float | None]:
    links: list[Host | Site] = [*lab.hosts, *lab.sites]
    return [
        *(link.uplink for link in links),
        *(link.downlink for link in links),
        *(path.rate for path in lab.paths),
    ]


def _forwarded(lab: Lab) -> list[tuple[str, str]]:
    """Sender and receiver of all that passes the forwarder, as sites."""
    delayed = sorted({site for path in lab.paths if path.is_delayed for site in path.between})
    return [(site.name, receiver) for receiver in delayed for site in lab.sites if site.name != receiver]


def _together(lab: Lab) -> float:
    """The most that the forwarder can be given at once, in bits a second: what all senders can send."""
    total = 0.0
    for site in lab.sites:
        rates = [_rate_across(lab, *pair) for pair in _forwarded(lab) if pair[0] == site.name]
        total += min(_uplinks(lab, site.name), sum(rates))
    return total


def _rate_across(lab: Lab, sender: str, receiver: str) -> float:
    """Bits a second that one site can get across to another at most; infinite where nothing limits it."""
    limits = [_uplinks(lab, sender), lab.path(sender, receiver).rate, _downlinks(lab, receiver)]
    return min(limit for limit in limits if limit is not None)


def _uplinks(lab: Lab, site: str) -> float:
    hosts = sum(_or_infinite(host.uplink) for host in lab.hosts_of(site))
    return min(_or_infinite(lab.site(site).uplink), hosts)


def _downlinks(lab: Lab, site: str) -> float:
    hosts = sum(_or_infinite(host.downlink) for host in lab.hosts_of(site))
    return min(_or_infinite(lab.site(site).downlink), hosts)


def _or_infinite(rate: float | None) -> float:
    return float("inf") if rate is None else rate


def _cores(lab: Lab) -> float:
    return sum(host.cpu or 0.0 for host in lab.hosts)


def _memory(lab: Lab) -> int:
    return sum(host.memory or 0 for host in lab.hosts)
