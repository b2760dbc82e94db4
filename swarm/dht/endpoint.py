"""Where datagrams leave and arrive: an interface, and its form over UDP sockets of both families.

The interface is also implemented in memory, by :mod:`swarm.testing.datagrams`.
"""

import asyncio
import errno
import socket
import sys
from collections.abc import Callable
from typing import Any, Final, Protocol, cast

from swarm.clock import elapsed
from swarm.dht.addresses import Address, Family, resolve
from swarm.errors import FailureError, MisuseError
from swarm.log import get_log

Receive = Callable[[bytes, Address], None]

_log = get_log(__name__)
_PORT_ATTEMPTS: Final = 8
"""Ports the system may offer for one family that are taken in the other, before we give up."""

_ROUTE_SECONDS: Final = 60.0
"""How long the answer to "is there a route" is believed: laptops move."""

_ANYBODY: Final[dict[Family, Address]] = {
    "IPv4": Address.of("192.0.2.1", 9),
    "IPv6": Address.of("2001:db8::1", 9),
}
"""Addresses for documentation (RFC 5737, RFC 3849), to ask the system for a route to."""

_NO_FAMILY: Final = frozenset({errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL, errno.EPROTONOSUPPORT})


class Endpoint(Protocol):
    """Open sockets that share one port."""

    @property
    def port(self) -> int:
        """The port, also where the system chose it."""
        ...

    @property
    def families(self) -> frozenset[Family]:
        """The address families whose addresses are of use here."""
        ...

    @property
    def is_sound(self) -> bool:
        """Whether it is still able to receive; one that is not should be closed and opened anew."""
        ...

    def send(self, data: bytes, address: Address) -> bool:
        """Send one datagram, or lose it: never blocks, never raises.

        False where there is no way from here to ``address``, such as a family that this machine lacks.
        """
        ...

    def close(self) -> None:
        """Close the sockets."""
        ...


class Network(Protocol):
    """What endpoints are opened on."""

    async def open(self, hosts: tuple[str, ...], port: int, receive: Receive) -> Endpoint:
        """An endpoint on ``hosts`` (numbers or names) and ``port`` (0: any that is free), which calls
        ``receive`` for each datagram. Raises FailureError with the remedy where that cannot be, and
        MisuseError where two hosts are of one family."""
        ...


class UdpNetwork:
    """The network of this machine."""

    async def open(self, hosts: tuple[str, ...], port: int, receive: Receive) -> Endpoint:
        """Bind UDP sockets. A family that the machine does not have is left out while another is left."""
        addresses = await _one_a_family(hosts, port)
        sockets = _bind_all(addresses)
        loop = asyncio.get_running_loop()
        endpoint = _UdpEndpoint()
        try:
            for bound in sockets:
                await loop.create_datagram_endpoint(lambda: _Receiver(endpoint, receive), sock=bound)
        except BaseException:
            endpoint.close()
            for bound in sockets:
                bound.close()
            raise
        return endpoint


async def _one_a_family(hosts: tuple[str, ...], port: int) -> list[Address]:
    """The addresses to bind: of each host the first of each family that no host before it has."""
    chosen: dict[Family, Address] = {}
    for host in hosts:
        before = len(chosen)
        try:
            found = await resolve(host, port)
        except OSError as error:
            raise FailureError(
                f"cannot listen on {host}: {error.strerror or error}: give --listen HOST:PORT"
            ) from None
        for address in found:
            chosen.setdefault(address.family, address)
        if len(chosen) == before:
            raise MisuseError(f"cannot listen on {host} as well: give one host for each of IPv4 and IPv6")
    return list(chosen.values())


class _UdpEndpoint:
    def __init__(self) -> None:
        self._transports: dict[Family, asyncio.DatagramTransport] = {}
        self._sound = True
        self._closed = False
        self._port = 0
        self._routes: dict[Family, tuple[float, bool]] = {}

    def add(self, transport: asyncio.DatagramTransport) -> None:
        host, port = transport.get_extra_info("sockname")[:2]
        self._transports[Address.of(host, port).family] = transport
        self._port = port

    def lose(self, error: Exception | None) -> None:
        if not self._closed:
            _log.warning("datagram socket lost, to be opened anew", port=self._port, error=error)
            self._sound = False

    @property
    def port(self) -> int:
        return self._port

    @property
    def is_sound(self) -> bool:
        return self._sound

    def send(self, data: bytes, address: Address) -> bool:
        transport = self._transports.get(address.family)
        if transport is None or transport.is_closing():
            return False
        if address.is_global and not self._has_route(address.family):
            return False
        transport.sendto(data, _sockaddr(address))
        return True

    @property
    def families(self) -> frozenset[Family]:
        routed = frozenset(family for family in self._transports if self._has_route(family))
        return routed or frozenset(self._transports)

    def _has_route(self, family: Family) -> bool:
        """Whether the machine has a way to the internet of this family, as of a minute ago at most.

        Many have IPv6 addresses and no IPv6; without this, each lookup waits for what cannot arrive.
        """
        now = elapsed()
        known = self._routes.get(family)
        if known is None or now - known[0] > _ROUTE_SECONDS:
            known = self._routes[family] = (now, _probe_route(family))
        return known[1]

    def close(self) -> None:
        self._closed = True
        for transport in self._transports.values():
            transport.abort()


class _Receiver(asyncio.DatagramProtocol):
    def __init__(self, endpoint: _UdpEndpoint, receive: Receive) -> None:
        self._endpoint = endpoint
        self._receive = receive

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._endpoint.add(cast(asyncio.DatagramTransport, transport))

    def datagram_received(self, data: bytes, addr: tuple[Any, ...]) -> None:
        self._receive(data, address_of(addr))

    def error_received(self, exc: Exception) -> None:
        _log.debug("datagram not delivered", reason=exc)
        if sys.platform == "win32":
            # There, an unreachable port at the far end silences the socket for good (CPython issue 127057).
            self._endpoint.lose(exc)

    def connection_lost(self, exc: Exception | None) -> None:
        self._endpoint.lose(exc)


def address_of(sockaddr: tuple[Any, ...]) -> Address:
    """The address in a socket address; the zone of a link-local one as a number."""
    host, port = sockaddr[:2]
    zone = sockaddr[3] if len(sockaddr) > 3 else 0
    host = host.partition("%")[0]
    return Address.of(f"{host}%{zone}" if zone else host, port)


def _sockaddr(address: Address) -> tuple[str, int] | tuple[str, int, int, int]:
    if address.family == "IPv4":
        return address.host, address.port
    host, _, zone = address.host.partition("%")
    return host, address.port, 0, int(zone or 0)


def _probe_route(family: Family) -> bool:
    """Whether the system knows where to send what is for the internet; sends nothing."""
    address = _ANYBODY[family]
    with _socket(family) as probe:
        probe.setblocking(False)
        try:
            probe.connect(_sockaddr(address))
        except OSError:
            return False
    return True


def _socket(family: Family) -> socket.socket:
    return socket.socket(socket.AF_INET if family == "IPv4" else socket.AF_INET6, socket.SOCK_DGRAM)


def _bind_all(addresses: list[Address]) -> list[socket.socket]:
    """Bound sockets, one for each address, on one port."""
    attempts = _PORT_ATTEMPTS if addresses[0].port == 0 else 1
    while True:
        attempts -= 1
        try:
            return _bind_once(addresses)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or not attempts:
                raise _failure(addresses[0].port, error) from None


def _bind_once(addresses: list[Address]) -> list[socket.socket]:
    bound: list[socket.socket] = []
    missing: OSError | None = None
    try:
        for address in addresses:
            port = bound[0].getsockname()[1] if bound else address.port
            try:
                bound.append(_bind(Address(address.host, port)))
            except OSError as error:
                if error.errno not in _NO_FAMILY:
                    raise
                missing = error
        if missing is not None and not bound:
            raise missing
    except OSError:
        for each in bound:
            each.close()
        raise
    return bound


def _bind(address: Address) -> socket.socket:
    bound = _socket(address.family)
    try:
        if address.family == "IPv6":
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.setblocking(False)
        bound.bind(_sockaddr(address))
    except BaseException:
        bound.close()
        raise
    return bound


def _failure(port: int, error: OSError) -> FailureError:
    if error.errno == errno.EADDRINUSE:
        return FailureError(f"port {port} (UDP) is taken: give another one with --listen HOST:PORT")
    return FailureError(
        f"cannot listen on port {port} (UDP): {error.strerror or error}: give another --listen HOST:PORT"
    )
