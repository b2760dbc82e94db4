"""Where datagrams go: numeric addresses, their 6- and 18-byte forms, and host names that become them."""

import asyncio
import functools
import ipaddress
import socket
from dataclasses import dataclass
from typing import Final, Literal

from swarm.errors import MisuseError, RemoteProtocolError

Family = Literal["IPv4", "IPv6"]

_PORT_BYTES: Final = 2
_NEIGHBOURHOOD_BITS: Final = {4: 24, 6: 56}
_LOCAL: Final = {
    4: tuple(map(ipaddress.ip_network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"))),
    6: (ipaddress.ip_network("fc00::/7"),),
}
"""RFC 1918 and RFC 4193. What providers share (RFC 6598) is not among them: their routers lie before it."""
_PACKED_LENGTHS: Final = (4 + _PORT_BYTES, 16 + _PORT_BYTES)


@functools.lru_cache(maxsize=4096)
def _parsed(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    return ipaddress.ip_address(host)


@functools.lru_cache(maxsize=4096)
def _unpacked(host: bytes) -> str:
    return str(ipaddress.ip_address(host))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Nature:
    """What a host is, worked out once: lookups ask it of every address that they hear."""

    family: Family
    loopback: bool
    link_local: bool
    local: bool
    internet: bool
    one_host: bool
    neighbourhood: str


@functools.lru_cache(maxsize=4096)
def _nature(host: str) -> _Nature:
    ip = _parsed(host)
    bits = _NEIGHBOURHOOD_BITS[ip.version]
    start = int(ip) >> (ip.max_prefixlen - bits) << (ip.max_prefixlen - bits)
    one_host = not ip.is_multicast and not ip.is_unspecified
    if isinstance(ip, ipaddress.IPv4Address):
        one_host = one_host and not ip.is_reserved
    else:
        one_host = one_host and (not ip.is_link_local or ip.scope_id is not None)
    return _Nature(
        family="IPv4" if ip.version == 4 else "IPv6",
        loopback=ip.is_loopback,
        link_local=ip.is_link_local,
        local=ip.is_loopback or ip.is_link_local or any(ip in network for network in _LOCAL[ip.version]),
        internet=ip.is_global,
        one_host=one_host,
        neighbourhood=str(ipaddress.ip_network((start, bits))),
    )


@dataclass(frozen=True, slots=True)
class Address:
    """A numeric host in its canonical spelling, and a UDP port."""

    host: str
    port: int

    @classmethod
    def of(cls, host: str, port: int) -> "Address":
        """The address with the canonical spelling of ``host``; raises ValueError where it is no number."""
        return cls(str(_parsed(host)), port)

    @property
    def family(self) -> Family:
        """The address family, as people call it."""
        return _nature(self.host).family

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can be meant."""
        return _nature(self.host).loopback

    @property
    def is_dialable(self) -> bool:
        """Whether one host can be meant: not many, not none, and no link-local one without its zone."""
        return self.port != 0 and _nature(self.host).one_host

    @property
    def is_global(self) -> bool:
        """Whether the address is one of the internet's, and not of some network's own."""
        return _nature(self.host).internet

    @property
    def is_link_local(self) -> bool:
        """Whether the address means something on one network segment only."""
        return _nature(self.host).link_local

    @property
    def is_local(self) -> bool:
        """Whether the address is of a home or an office, which no router of theirs lies before."""
        return _nature(self.host).local

    @property
    def neighbourhood(self) -> str:
        """The network that the address is in, as far as one party gets many of its addresses."""
        return _nature(self.host).neighbourhood

    def pack(self) -> bytes:
        """The 4 or 16 bytes of the host, and 2 of the port."""
        return _parsed(self.host).packed + self.port.to_bytes(_PORT_BYTES, "big")

    @classmethod
    def unpack(cls, data: bytes) -> "Address":
        """The address that :meth:`pack` wrote; raises RemoteProtocolError for any other length."""
        if len(data) not in _PACKED_LENGTHS:
            raise RemoteProtocolError(f"an address has {len(data)} bytes")
        return cls(_unpacked(data[:-_PORT_BYTES]), int.from_bytes(data[-_PORT_BYTES:], "big"))

    def __str__(self) -> str:
        return f"{self.host}:{self.port}" if self.family == "IPv4" else f"[{self.host}]:{self.port}"


def may_pass(address: Address, *, between: Address) -> bool:
    """Whether ``address`` can mean to a peer at ``between`` what it means to us.

    A loopback address only does on this machine, and a link-local one on no other segment; both are neither
    given to nor taken from anybody else.
    """
    nature = _nature(address.host)
    if address.port == 0 or not nature.one_host or nature.link_local:
        return False
    return not nature.loopback or between.is_loopback


def split_host_port(text: str) -> tuple[str, int]:
    """Host and port of ``HOST:PORT`` or ``[HOST]:PORT``; raises MisuseError with the remedy."""
    host, separator, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        separator = ""
    if not separator or not host or not (port.isascii() and port.isdigit()) or not 0 < int(port) < 65536:
        raise MisuseError(f"{text!r} is not an address: write HOST:PORT, or [HOST]:PORT for IPv6")
    return host, int(port)


async def resolve(host: str, port: int) -> tuple[Address, ...]:
    """All numeric addresses of ``host``; raises OSError with the resolver's reason.

    Can block for as long as the system's resolver does, so callers put a deadline on it.
    """
    try:
        return (Address.of(host, port),)
    except ValueError:
        pass
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
    except UnicodeError:
        raise OSError(f"{host!r} is not a host name") from None
    addresses = (Address.of(str(entry[4][0]), port) for entry in found)
    return tuple(dict.fromkeys(addresses))
