"""Listening and connecting with the machine's own sockets; what the user is told is in tests/integration."""

import asyncio
import errno
import socket

import pytest

from swarm.errors import FailureError, LinkLostError
from swarm.net import network
from swarm.net.address import Address
from swarm.net.network import PORT_ATTEMPTS, SystemNetwork


class Greeter(asyncio.Protocol):
    """Says hello to whoever calls."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        transport.write(b"hello")
        transport.close()


class Listener(asyncio.Protocol):
    """Remembers what it hears."""

    def __init__(self) -> None:
        self.heard = b""
        self.done = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        self.heard += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.done.set()


async def test_all_families_get_one_port_and_each_answers() -> None:
    system = SystemNetwork()
    listening = await system.listen("", 0, Greeter)
    assert len({address.port for address in listening.addresses}) == 1
    for address in listening.addresses:
        caller = Listener()
        host = "::1" if ":" in address.host else "127.0.0.1"
        await system.connect(Address(host, address.port), lambda caller=caller: caller)
        await caller.done.wait()
        assert caller.heard == b"hello"
    listening.close()


async def test_a_closed_listener_takes_no_more() -> None:
    system = SystemNetwork()
    listening = await system.listen("127.0.0.1", 0, Greeter)
    listening.close()
    with pytest.raises(LinkLostError, match="does not listen"):
        await system.connect(listening.addresses[0], Listener)


async def test_a_port_that_one_family_lacks_is_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    bind, refused = network._bind, []

    def stingy(family: socket.AddressFamily, host: str, port: int, *, optional: bool) -> socket.socket | None:
        if optional and len(refused) < PORT_ATTEMPTS - 1:
            refused.append(port)
            raise OSError(errno.EADDRINUSE, "in use")
        return bind(family, host, port, optional=optional)

    monkeypatch.setattr(network, "_bind", stingy)
    listening = await SystemNetwork().listen("", 0, Greeter)
    assert len(refused) == PORT_ATTEMPTS - 1
    listening.close()


async def test_without_a_second_family_one_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    make = socket.socket

    def only_v4(family: int = socket.AF_INET, *args: int) -> socket.socket:
        if family == socket.AF_INET6:
            raise OSError(errno.EAFNOSUPPORT, "no IPv6 here")
        return make(family, *args)

    monkeypatch.setattr(network.socket, "socket", only_v4)
    listening = await SystemNetwork().listen("", 0, Greeter)
    assert len(listening.addresses) == 1
    assert ":" not in listening.addresses[0].host
    listening.close()


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.EACCES, "port 7 is taken or not allowed to this user: give --listen HOST:PORT"),
        (errno.EMFILE, "cannot listen on port 7 (too many open files): give --listen HOST:PORT"),
    ],
)
async def test_other_failures_say_what_to_do(
    monkeypatch: pytest.MonkeyPatch, number: int, words: str
) -> None:
    def fail(*_: object, **__: object) -> socket.socket:
        raise OSError(number, "Too many open files")

    monkeypatch.setattr(network, "_bind", fail)
    with pytest.raises(FailureError) as caught:
        await SystemNetwork().listen("", 7, Greeter)
    assert str(caught.value).startswith(words)


async def test_a_host_that_is_none_cannot_be_listened_on() -> None:
    with pytest.raises(
        FailureError, match=r"there is no host 'nowhere\.invalid' to listen on: give --listen"
    ):
        await SystemNetwork().listen("nowhere.invalid", 0, Greeter)
