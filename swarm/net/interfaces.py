"""Where this machine can be reached, as far as it knows itself; no traffic is sent to find out."""

import ipaddress
import socket
from collections.abc import Sequence

import psutil

Ip = ipaddress.IPv4Address | ipaddress.IPv6Address


def own_hosts() -> tuple[str, ...]:
    """The numeric addresses of this machine, loopback and link-local ones left out, IPv4 first."""
    found: dict[Ip, None] = {}
    for addresses in psutil.net_if_addrs().values():
        for address in addresses:
            if address.family in {socket.AF_INET, socket.AF_INET6}:
                host = ipaddress.ip_address(address.address.partition("%")[0])
                if not (host.is_loopback or host.is_link_local or host.is_multicast or host.is_unspecified):
                    found[host] = None
    ordered = sorted(found, key=lambda host: (host.version, not host.is_global, int(host)))
    return tuple(str(host) for host in ordered)


def is_on_link(host: str) -> bool:
    """Whether ``host`` is a number in a network that this machine has an interface in."""
    ip = ipaddress.ip_address(host.partition("%")[0])
    for addresses in psutil.net_if_addrs().values():
        for address in addresses:
            if address.family in {socket.AF_INET, socket.AF_INET6} and address.netmask:
                own = ipaddress.ip_address(address.address.partition("%")[0])
                bits = int(ipaddress.ip_address(address.netmask)).bit_count()
                if own.version == ip.version and ip in ipaddress.ip_network((own, bits), strict=False):
                    return True
    return False


def is_loopback(host: str) -> bool:
    """Whether ``host`` names this machine to itself only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False


def reachable_hosts(listening: Sequence[str], observed: Sequence[str]) -> tuple[str, ...]:
    """The hosts to tell others, given those that we listen on (empty: all) and those others saw us from.

    Others saw the address of our router where there is one: a hint, which is right where the router forwards
    the port. Loopback is told only to those who share it with us.
    """
    everywhere = any(host in {"", "0.0.0.0", "::"} for host in listening)  # noqa: S104 - compared
    given = [host for host in listening if not is_loopback(host)]
    found = dict.fromkeys(own_hosts() if everywhere else given)
    seen = [host for host in observed if not is_loopback(host)]
    found.update(dict.fromkeys(seen))
    local = [host for host in listening if is_loopback(host)] or (["127.0.0.1"] if everywhere else [])
    if len(seen) < len(observed) or not found:
        found.update(dict.fromkeys(local))
    return tuple(found)
