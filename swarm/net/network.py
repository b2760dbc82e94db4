"""Sockets: connecting and listening, behind the interface that the in-memory network has too."""

import asyncio
import errno
import os
import socket
import sys
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from swarm.errors import FailureError, LinkLostError
from swarm.net.address import Address
from swarm.net.connecting import Target, connect_first
from swarm.net.tls import reason_of

ProtocolFactory = Callable[[], asyncio.BaseProtocol]

ANY_HOST: Final = ""
"""Listens on all addresses of this machine, in both families."""
PORT_ATTEMPTS: Final = 16
"""How often a free port is looked for that both families have."""
BACKLOG: Final = 128


class Listener(Protocol):
    """Something that takes connections until it is closed."""

    @property
    def addresses(self) -> tuple[Address, ...]:
        """Where it listens; all have the same port."""
        ...

    def close(self) -> None:
        """Take no more connections; those that there are stay."""
        ...


class Network(Protocol):
    """Where connections come from."""

    async def connect(self, address: Address, factory: ProtocolFactory) -> None:
        """Connect a protocol that ``factory`` makes to ``address``.

        Raises LinkLostError, whose text has the address as its subject. Has no deadline itself.
        """
        ...

    async def listen(self, host: str, port: int, factory: ProtocolFactory) -> Listener:
        """Connect a protocol that ``factory`` makes to everybody who calls.

        ``host`` empty means all addresses of both families, ``port`` 0 any that is free. Raises FailureError
        with the remedy.
        """
        ...


class SystemNetwork:
    """TCP of this machine."""

    async def connect(self, address: Address, factory: ProtocolFactory) -> None:
        """Try all numeric addresses of the host, and take the first that answers."""
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            reason = reason_of(error) if isinstance(error, OSError) else "not a host name"
            raise LinkLostError(f"does not exist: there is no host {address.host} ({reason})") from None
        targets = [Target(family, target) for family, _, _, _, target in found]
        sock = await connect_first(targets)
        try:
            await loop.create_connection(factory, sock=sock)
        except BaseException:
            sock.close()
            raise

    async def listen(self, host: str, port: int, factory: ProtocolFactory) -> Listener:
        """Bind every address of ``host`` with one port."""
        loop = asyncio.get_running_loop()
        hosts = await _hosts(host)
        sockets = _bind_all(hosts, port, host)
        servers: list[asyncio.Server] = []
        try:
            for sock in sockets:
                servers.append(await loop.create_server(factory, sock=sock, backlog=BACKLOG))  # noqa: PERF401
        except BaseException:
            for server in servers:
                server.close()
            for sock in sockets:
                sock.close()
            raise
        return _SystemListener(servers, sockets)


class _SystemListener:
    def __init__(self, servers: Sequence[asyncio.Server], sockets: Sequence[socket.socket]) -> None:
        self._servers = servers
        self._addresses = tuple(Address(*sock.getsockname()[:2]) for sock in sockets)

    @property
    def addresses(self) -> tuple[Address, ...]:
        """Where it listens."""
        return self._addresses

    def close(self) -> None:
        """Take no more connections."""
        for server in self._servers:
            server.close()


async def _hosts(host: str) -> list[tuple[socket.AddressFamily, str]]:
    if host == ANY_HOST:
        families = [(socket.AF_INET, "0.0.0.0")]  # noqa: S104 - a peer is there to be reached
        if socket.has_ipv6:
            families.append((socket.AF_INET6, "::"))
        return families
    try:
        found = await asyncio.get_running_loop().getaddrinfo(
            host, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except (OSError, UnicodeError):
        raise FailureError(f"there is no host {host!r} to listen on: give --listen HOST:PORT") from None
    return list(dict.fromkeys((family, str(target[0])) for family, _, _, _, target in found))


def _bind_all(
    hosts: Sequence[tuple[socket.AddressFamily, str]], port: int, shown: str
) -> list[socket.socket]:
    """One socket for each of ``hosts``, all with the same port."""
    for attempt in range(PORT_ATTEMPTS):
        sockets: list[socket.socket] = []
        chosen = port
        try:
            for family, host in hosts:
                sock = _bind(family, host, chosen, optional=bool(sockets))
                if sock is not None:
                    sockets.append(sock)
                    chosen = sock.getsockname()[1]
        except OSError as error:
            for sock in sockets:
                sock.close()
            again = error.errno == errno.EADDRINUSE and not port and attempt < PORT_ATTEMPTS - 1
            if not again:
                raise _why_not_bound(error, shown, chosen) from None
        else:
            return sockets
    raise FailureError("there is no port that both families have free: give --listen HOST:PORT")


def _bind(family: socket.AddressFamily, host: str, port: int, *, optional: bool) -> socket.socket | None:
    """A bound socket; None where it is optional and this machine does not have the address family."""
    try:
        sock = socket.socket(family, socket.SOCK_STREAM)
    except OSError:
        if optional:
            return None
        raise
    try:
        sock.setblocking(False)
        if os.name == "posix" and sys.platform != "cygwin":
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        elif hasattr(socket, "SO_EXCLUSIVEADDRUSE"):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_EXCLUSIVEADDRUSE, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind((host, port))
        sock.listen(BACKLOG)
    except OSError as error:
        sock.close()
        if optional and error.errno in {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}:
            return None
        raise
    return sock


def _why_not_bound(error: OSError, host: str, port: int) -> FailureError:
    where = f"port {port}" if host == ANY_HOST else f"{Address(host, port)}"
    if error.errno == errno.EADDRINUSE:
        return FailureError(f"{where} is taken by another program: give --listen HOST:PORT with another port")
    if error.errno == errno.EACCES:  # on Windows also for a port that another program has to itself
        return FailureError(
            f"{where} is taken or not allowed to this user: give --listen HOST:PORT with another port"
        )
    if error.errno == errno.EADDRNOTAVAIL:
        return FailureError(f"{host} is no address of this machine: give --listen HOST:PORT with one that is")
    return FailureError(f"cannot listen on {where} ({reason_of(error)}): give --listen HOST:PORT")
