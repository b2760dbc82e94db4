"""Multicast DNS on loopback: peers of one swarm hear of each other, and strangers learn a tag and no more."""

import asyncio
from collections.abc import Sequence

import pytest
from zeroconf import InterfaceChoice
from zeroconf.asyncio import AsyncServiceBrowser, AsyncServiceInfo, AsyncZeroconf

from swarm.ids import SwarmId
from swarm.net import multicast as module
from swarm.net.multicast import SERVICE, Multicast, tag_of

LAB, OTHER = SwarmId("k3vq" * 8), SwarmId("aaaa" * 8)
LOOPBACK = "127.0.0.1"


class Heard:
    """What one peer was told."""

    def __init__(self) -> None:
        self.addresses: list[str] = []
        self.event = asyncio.Event()

    def __call__(self, addresses: Sequence[str]) -> None:
        self.addresses += addresses
        self.event.set()


async def test_two_peers_of_a_swarm_hear_of_each_other_and_not_of_another_swarms() -> None:
    ports = (41001, 41002)
    heard = {port: Heard() for port in (*ports, 41003)}
    multicast = Multicast(interfaces=(LOOPBACK,))
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        tasks = [group.create_task(multicast.run(OTHER, 41003, heard[41003]))]
        tasks += [group.create_task(multicast.run(LAB, port, heard[port])) for port in ports]
        for port in ports:
            await heard[port].event.wait()
        for task in tasks:
            task.cancel()
    assert heard[41001].addresses == [f"{LOOPBACK}:41002"]
    assert heard[41002].addresses == [f"{LOOPBACK}:41001"]
    assert heard[41003].addresses == []


async def test_a_stranger_in_the_network_learns_a_tag_a_name_of_chance_and_where_somebody_listens() -> None:
    names: asyncio.Queue[str] = asyncio.Queue()
    async with (
        asyncio.timeout(30),
        AsyncZeroconf(interfaces=[LOOPBACK]) as stranger,
        asyncio.TaskGroup() as group,
    ):
        task = group.create_task(Multicast(interfaces=(LOOPBACK,)).run(LAB, 41004, Heard()))

        def seen(name: str, **_: object) -> None:
            names.put_nowait(name)

        AsyncServiceBrowser(stranger.zeroconf, SERVICE, handlers=[seen])
        info = AsyncServiceInfo(SERVICE, await names.get())
        assert await info.async_request(stranger.zeroconf, 10_000)
        task.cancel()
    tag, chance = info.name.removesuffix(f".{SERVICE}").split("-")
    assert (tag, len(chance)) == (tag_of(LAB), 13)
    assert info.server == f"{tag}-{chance}.local."
    assert (info.port, info.parsed_addresses(), info.properties) == (41004, [LOOPBACK], {})
    assert LAB not in str(info)


async def test_an_announcement_cannot_aim_peers_at_a_host_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    heard, looked = Heard(), asyncio.Event()

    def is_on_link(host: str) -> bool:
        looked.set()
        return real(host)

    real = module.is_on_link
    monkeypatch.setattr(module, "is_on_link", is_on_link)
    name = f"{tag_of(LAB)}-forged"
    forged = AsyncServiceInfo(
        SERVICE, f"{name}.{SERVICE}", port=80, server=f"{name}.local.", parsed_addresses=["198.51.100.7"]
    )
    async with (
        asyncio.timeout(30),
        AsyncZeroconf(interfaces=[LOOPBACK]) as liar,
        asyncio.TaskGroup() as group,
    ):
        task = group.create_task(Multicast(interfaces=(LOOPBACK,)).run(LAB, 41005, heard))
        await (await liar.async_register_service(forged, cooperating_responders=True))
        await looked.wait()
        task.cancel()
    assert heard.addresses == []


async def test_a_machine_without_multicast_is_told_once_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[InterfaceChoice] = []
    asked = asyncio.Event()

    def refuse(**words: object) -> None:
        opened.append(words["interfaces"])
        if len(opened) == 2:
            asked.set()
        raise OSError(19, "No such device")

    monkeypatch.setattr(module, "AsyncZeroconf", refuse)
    monkeypatch.setattr(module, "own_hosts", lambda: ("192.0.2.1",))
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        task = group.create_task(Multicast().run(LAB, 41006, Heard()))
        await asked.wait()
        await asyncio.sleep(0)
        assert not task.done()
        task.cancel()
    assert opened == [InterfaceChoice.All] * 2
