"""Discovery over real sockets on loopback, on both event loops, with nothing blocking the loop."""

import asyncio
import os
import socket
import sys
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from blockbuster import blockbuster_ctx

from swarm.clock import SystemClock
from swarm.dht.discovery import Discovery, DiscoveryConfig
from swarm.errors import FailureError
from swarm.identity.keys import PrivateKey
from swarm.ids import swarm_id

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {"asyncio": asyncio.new_event_loop}
if sys.platform != "win32":
    import uvloop

    LOOPS["uvloop"] = uvloop.new_event_loop

SWARM = swarm_id(bytes(32))
EPOCH_KEY = bytes(range(32))


class Kit:
    """Peers on loopback, all closed in the end."""

    def __init__(self) -> None:
        self.opened: list[Discovery] = []

    async def start(self, *, epoch: bytes = EPOCH_KEY, **config: Any) -> Discovery:
        fields: dict[str, Any] = {"swarm": SWARM, "listen": ("127.0.0.1",), "port": 0}
        peer = Discovery(DiscoveryConfig(**fields | config), key=PrivateKey.generate(), clock=SystemClock())
        peer.set_epoch(1, epoch)
        await peer.start()
        self.opened.append(peer)
        return peer

    async def swarm(self, count: int, host: str = "127.0.0.1") -> list[Discovery]:
        """``count`` peers, joined through the first, each published."""
        peers = [await self.start(listen=(host,)) for _ in range(count)]
        for peer in peers[1:]:
            await peer.join([seed_of(peers[0], host)])
        for peer in peers:
            await peer.publish([seed_of(peer, host)], "peer")
        return peers

    async def aclose(self) -> None:
        for peer in self.opened:
            await peer.aclose()


def seed_of(peer: Discovery, host: str = "127.0.0.1") -> str:
    return f"[{host}]:{peer.port}" if ":" in host else f"{host}:{peer.port}"


Run = Callable[[Callable[[Kit], Coroutine[Any, Any, None]]], None]


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Run:
    """Runs a coroutine; fails on exceptions that nobody retrieved and on calls that block."""

    def runner(body: Callable[[Kit], Coroutine[Any, Any, None]]) -> None:
        async def main() -> None:
            asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
            kit = Kit()
            with blockbuster_ctx():
                try:
                    await body(kit)
                finally:
                    await kit.aclose()
            assert len(asyncio.all_tasks()) == 1

        errors: list[Any] = []
        with asyncio.Runner(loop_factory=LOOPS[request.param]) as loop_runner:
            loop_runner.run(main())
        assert errors == []

    return runner


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


HOSTS = ["127.0.0.1", "::1"] if has_ipv6() else ["127.0.0.1"]


@pytest.mark.parametrize("host", HOSTS)
def test_twenty_peers_find_each_other_and_still_do_when_half_have_stopped(run: Run, host: str) -> None:
    async def body(kit: Kit) -> None:
        peers = await kit.swarm(20, host)
        expected = {seed_of(peer, host) for peer in peers}
        for peer in peers:
            found = await peer.find()
            assert {address for record in found for address in record.addresses} == expected
        for peer in peers[::2]:
            await peer.aclose()
        for peer in peers[1::4]:
            assert len(await peer.find()) == 20
            assert await peer.publish([seed_of(peer, host)], "peer") == 9
            assert await peer.confirm()

    run(body)


def test_with_emptied_storage_nothing_is_found_or_confirmed(run: Run) -> None:
    async def body(kit: Kit) -> None:
        peers = await kit.swarm(6)
        for peer in peers:
            peer.forget_records()
        assert [await peer.find() for peer in peers] == [[]] * 6
        assert not await peers[2].confirm()

    run(body)


def test_peers_of_different_families_meet_through_one_that_has_both(run: Run) -> None:
    async def body(kit: Kit) -> None:
        hub = await kit.start(listen=tuple(HOSTS))
        await hub.publish([seed_of(hub)], "bootstrap")
        peers = [await kit.start(listen=(host,)) for host in HOSTS]
        for peer, host in zip(peers, HOSTS, strict=True):
            report = await peer.join([seed_of(hub, host)])
            assert [attempt.answered for attempt in report.attempts] == [True]
            await peer.publish([f"{host.strip(':')}:1"], "peer")
        assert [len(await peer.find()) for peer in peers] == [1 + len(HOSTS)] * len(HOSTS)

    run(body)


def test_a_seed_may_be_a_host_name(run: Run) -> None:
    async def body(kit: Kit) -> None:
        hub = await kit.start()
        peer = await kit.start(listen=("localhost",))
        report = await peer.join([f"localhost:{hub.port}"])
        assert any(attempt.answered and attempt.family == "IPv4" for attempt in report.attempts)

    run(body)


def test_random_bytes_at_the_port_get_no_answer_and_change_nothing(run: Run) -> None:
    async def body(kit: Kit) -> None:
        peers = await kit.swarm(3)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
            stranger.setblocking(False)
            stranger.bind(("127.0.0.1", 0))
            for size in (0, 1, 21, 22, 69, 200, 1200, 1201, 9000):
                for _ in range(20):
                    stranger.sendto(os.urandom(size), ("127.0.0.1", peers[0].port))
            assert await peers[1].confirm()
            assert await peers[1].publish([seed_of(peers[1])], "peer") == 2
            with pytest.raises(BlockingIOError):
                stranger.recv(9000)
        refused = peers[0].statistics().datagrams
        assert sum(count for reason, count in refused.items() if reason.startswith("refused")) >= 100

    run(body)


def test_a_wrong_epoch_key_gets_no_answer_and_a_verdict_in_one_line(run: Run) -> None:
    async def body(kit: Kit) -> None:
        hub = await kit.start()
        stranger = await kit.start(epoch=bytes(32), join_deadline=1.0)
        with pytest.raises(FailureError) as raised:
            await stranger.join([seed_of(hub)])
        assert "no answer" in str(raised.value)
        assert "\n" not in str(raised.value)
        assert hub.statistics().datagrams.get("sent", 0) == 0

    run(body)


def test_a_taken_port_is_said_in_one_line(run: Run) -> None:
    async def body(kit: Kit) -> None:
        hub = await kit.start()
        with pytest.raises(FailureError, match=rf"^port {hub.port} \(UDP\) is taken"):
            await kit.start(port=hub.port)

    run(body)


def test_remembered_contacts_survive_a_restart(run: Run, tmp_path: Any) -> None:
    async def body(kit: Kit) -> None:
        peers = await kit.swarm(3)
        peer = await kit.start(state=tmp_path / "contacts.json")
        await peer.join([seed_of(peers[0])])
        await peer.aclose()
        gone = peers.pop(0)
        await gone.aclose()
        peer = await kit.start(state=tmp_path / "contacts.json")
        await peer.join([seed_of(peers[0])])
        assert len(await peer.find()) == 3

    run(body)


def test_running_ends_at_once_when_it_is_cancelled(run: Run) -> None:
    async def body(kit: Kit) -> None:
        peers = await kit.swarm(3)
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(peer.run()) for peer in peers]
            assert len(await peers[2].find()) == 3
            for task in running:
                task.cancel()

    run(body)
