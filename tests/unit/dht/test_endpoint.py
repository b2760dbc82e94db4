import asyncio
import errno
import socket
import sys
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from swarm.dht import endpoint as module
from swarm.dht.addresses import Address
from swarm.dht.endpoint import Endpoint, UdpNetwork, address_of
from swarm.errors import FailureError, MisuseError

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {"asyncio": asyncio.new_event_loop}
if sys.platform != "win32":
    import uvloop

    LOOPS["uvloop"] = uvloop.new_event_loop


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Callable[[Coroutine[Any, Any, None]], None]:
    def runner(body: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=LOOPS[request.param]) as loop_runner:
            loop_runner.run(body)

    return runner


class Inbox:
    def __init__(self) -> None:
        self.queue: asyncio.Queue[tuple[bytes, Address]] = asyncio.Queue()

    def receive(self, data: bytes, address: Address) -> None:
        self.queue.put_nowait((data, address))

    async def next(self) -> tuple[bytes, Address]:
        async with asyncio.timeout(10):
            return await self.queue.get()


async def opened(*hosts: str, port: int = 0) -> tuple[Endpoint, Inbox]:
    inbox = Inbox()
    return await UdpNetwork().open(hosts, port, inbox.receive), inbox


Run = Callable[[Coroutine[Any, Any, None]], None]


def test_datagrams_arrive_with_the_address_they_came_from(run: Run, loopbacks: tuple[str, ...]) -> None:
    async def body() -> None:
        for host in loopbacks:
            await there_and_back(host)

    async def there_and_back(host: str) -> None:
        one, first = await opened(host)
        two, second = await opened(host)
        one.send(b"there", Address.of(host, two.port))
        data, address = await second.next()
        assert (data, address) == (b"there", Address.of(host, one.port))
        two.send(b"back", address)
        assert await first.next() == (b"back", Address.of(host, two.port))
        one.close()
        two.close()

    run(body())


def test_the_families_share_one_port(run: Run, loopbacks: tuple[str, ...]) -> None:
    async def body() -> None:
        both, inbox = await opened(*loopbacks)
        for host in loopbacks:
            one, _ = await opened(host)
            one.send(host.encode(), Address.of(host, both.port))
            assert await inbox.next() == (host.encode(), Address.of(host, one.port))
            one.close()
        both.close()

    run(body())


def test_a_name_may_be_listened_on(run: Run) -> None:
    async def body() -> None:
        endpoint, inbox = await opened("localhost")
        endpoint.send(b"self", Address.of("127.0.0.1", endpoint.port))
        assert (await inbox.next())[0] == b"self"
        endpoint.close()

    run(body())


def test_a_taken_port_is_refused_in_one_line_with_the_remedy(run: Run) -> None:
    async def body() -> None:
        first, _ = await opened("127.0.0.1")
        with pytest.raises(FailureError, match=rf"^port {first.port} \(UDP\) is taken: .*--listen"):
            await opened("127.0.0.1", port=first.port)
        first.close()

    run(body())


def test_a_port_is_free_again_once_closed(run: Run) -> None:
    async def body() -> None:
        first, _ = await opened("127.0.0.1")
        first.close()
        first.send(b"ignored", Address.of("127.0.0.1", 9))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        again, _ = await opened("127.0.0.1", port=first.port)
        again.close()

    run(body())


@pytest.mark.parametrize("hosts", [("nowhere.invalid",), ("203.0.113.77",)])
def test_a_host_that_is_not_ours_is_refused_with_the_remedy(run: Run, hosts: tuple[str, ...]) -> None:
    async def body() -> None:
        with pytest.raises(FailureError, match=r"cannot listen on .*--listen|--listen"):
            await opened(*hosts)

    run(body())


def test_two_hosts_of_one_family_are_refused(run: Run) -> None:
    async def body() -> None:
        with pytest.raises(MisuseError, match="IPv4 and IPv6"):
            await opened("127.0.0.1", "127.0.0.2")

    run(body())


def refuse(monkeypatch: pytest.MonkeyPatch, error: int, *, hosts: tuple[str, ...]) -> list[str]:
    """Let binding to ``hosts`` fail with ``error``; returns the hosts that were tried."""
    bind, tried = module._bind, []

    def refusing(address: Address) -> socket.socket:
        tried.append(address.host)
        if address.host in hosts:
            raise OSError(error, "made up")
        return bind(address)

    monkeypatch.setattr(module, "_bind", refusing)
    return tried


def test_a_taken_port_in_one_family_leaves_no_socket_of_the_other_behind(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse(monkeypatch, errno.EADDRINUSE, hosts=("::1",))

    async def body() -> None:
        free, _ = await opened("127.0.0.1")
        free.close()
        for _ in range(3):
            await asyncio.sleep(0)
        with pytest.raises(FailureError, match="taken"):
            await opened("127.0.0.1", "::1", port=free.port)
        again, _ = await opened("127.0.0.1", port=free.port)
        again.close()

    run(body())


@pytest.mark.parametrize("error", [errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL])
def test_a_machine_without_ipv6_listens_on_ipv4(
    run: Run, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    refuse(monkeypatch, error, hosts=("::1",))

    async def body() -> None:
        endpoint, inbox = await opened("127.0.0.1", "::1")
        endpoint.send(b"self", Address.of("127.0.0.1", endpoint.port))
        endpoint.send(b"lost", Address.of("::1", endpoint.port))
        assert (await inbox.next())[0] == b"self"
        endpoint.close()

    run(body())


def test_a_free_port_that_the_other_family_has_taken_is_chosen_anew(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = refuse(monkeypatch, errno.EADDRINUSE, hosts=("::1",))

    async def body() -> None:
        with pytest.raises(FailureError, match="taken"):
            await opened("127.0.0.1", "::1")
        assert tried.count("127.0.0.1") > 1

    run(body())


def test_sending_where_no_one_listens_changes_nothing(run: Run) -> None:
    async def body() -> None:
        one, first = await opened("127.0.0.1")
        gone, _ = await opened("127.0.0.1")
        gone.close()
        two, _ = await opened("127.0.0.1")
        for _ in range(3):
            one.send(b"anybody?", Address.of("127.0.0.1", gone.port))
            one.send(b"anybody?", Address.of("::1", gone.port))
        two.send(b"here", Address.of("127.0.0.1", one.port))
        assert (await first.next())[0] == b"here"
        assert one.is_sound or sys.platform == "win32"
        one.close()
        two.close()

    run(body())


def test_a_socket_that_cannot_be_watched_is_closed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    bound: list[socket.socket] = []
    bind = module._bind

    def binding(address: Address) -> socket.socket:
        bound.append(bind(address))
        return bound[-1]

    async def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("out of watchers")

    monkeypatch.setattr(module, "_bind", binding)
    monkeypatch.setattr(asyncio.BaseEventLoop, "create_datagram_endpoint", refuse)
    with pytest.raises(RuntimeError, match="watchers"):
        asyncio.run(opened("127.0.0.1"))
    assert [one.fileno() for one in bound] == [-1]


def test_on_windows_an_error_from_the_far_end_makes_the_socket_unsound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for platform, sound in (("linux", True), ("win32", False)):
        endpoint = module._UdpEndpoint()
        receiver = module._Receiver(endpoint, lambda *_: None)
        monkeypatch.setattr(sys, "platform", platform)
        receiver.error_received(ConnectionResetError("unreachable"))
        assert endpoint.is_sound is sound


def test_it_says_where_there_is_no_way_to(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    probes: list[str] = []

    def probe(family: str) -> bool:
        probes.append(family)
        return False

    async def body() -> None:
        endpoint, _ = await opened("127.0.0.1")
        here = Address.of("127.0.0.1", endpoint.port)
        assert endpoint.send(b"", here)
        assert not endpoint.send(b"", Address.of("::1", endpoint.port))
        monkeypatch.setattr(module, "_probe_route", probe)
        for _ in range(3):
            assert not endpoint.send(b"", Address.of("8.8.8.8", 9))
            assert endpoint.send(b"", here)
        assert probes == ["IPv4"]
        assert endpoint.families == {"IPv4"}
        endpoint.close()
        assert not endpoint.send(b"", here)

    run(body())


def test_only_families_with_a_route_are_of_use(
    run: Run, monkeypatch: pytest.MonkeyPatch, loopbacks: tuple[str, ...]
) -> None:
    monkeypatch.setattr(module, "_probe_route", lambda family: family == "IPv4")

    async def body() -> None:
        both, _ = await opened(*loopbacks)
        assert both.families == {"IPv4"}
        both.close()

    run(body())


def test_the_system_is_asked_for_a_route_without_sending(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_ANYBODY", {"IPv4": Address.of("127.0.0.1", 9)})
    assert module._probe_route("IPv4")
    monkeypatch.setattr(module, "_ANYBODY", {"IPv4": Address.of("255.255.255.255", 9)})
    assert not module._probe_route("IPv4")


def test_a_socket_that_the_system_takes_away_is_noticed(run: Run) -> None:
    async def body() -> None:
        endpoint, _ = await opened("127.0.0.1")
        assert endpoint.is_sound
        for transport in endpoint._transports.values():
            transport.abort()
        for _ in range(10):
            await asyncio.sleep(0)
        assert not endpoint.is_sound
        endpoint.close()

    run(body())


@pytest.mark.parametrize(
    ("sockaddr", "address"),
    [
        (("10.0.0.1", 5), Address.of("10.0.0.1", 5)),
        (("2001:db8::1", 5, 0, 0), Address.of("2001:db8::1", 5)),
        (("fe80::1%eth0", 5, 0, 3), Address.of("fe80::1%3", 5)),
        (("fe80::1", 5, 0, 3), Address.of("fe80::1%3", 5)),
    ],
)
def test_socket_addresses_become_ours_and_back(sockaddr: tuple[Any, ...], address: Address) -> None:
    assert address_of(sockaddr) == address
    back = module._sockaddr(address)
    assert back[:2] == (address.host.partition("%")[0], 5)
    assert back[3:] == sockaddr[3:]
