"""What a node's caps make of its links, in time that does not pass for real."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from swarm import clock as system
from swarm.net.link import Link
from swarm.net.memory import MemoryNetwork
from swarm.net.pacing import ON_THE_WIRE
from swarm.testing.clock import ManualClock
from swarm.testing.loop import run_on_manual_clock
from swarm.testing.pools import Pools, Recorder
from swarm.wire.messages.blocks import BlockMissing, BlockReply

RATE = 200_000
PAYLOAD = bytes(1_000_000)
SECONDS = 30.0
HUB = "192.0.2.1"


class Star:
    """A pool in the middle, which may be capped, and two others that are linked with it."""

    def __init__(self, folder: Path, clock: ManualClock, caps: dict[str, int]) -> None:
        clock.set_wall(system.wall())  # OpenSSL judges certificates by the system's clock
        network, pools = MemoryNetwork(latency=0.01), Pools(folder, clock=clock)
        self.recorders = [Recorder() for _ in range(3)]
        self.hub, *self.others = (
            pools.pool(
                network.host(f"192.0.2.{1 + number}"), handlers=recorder, **(caps if not number else {})
            )
            for number, recorder in enumerate(self.recorders)
        )
        self.clock = clock

    @property
    def from_hub(self) -> list[Link]:
        """The links, as the one in the middle has them."""
        return list(self.hub.links.values())


def play(folder: Path, scene: Callable[[Star], Awaitable[None]], **caps: int) -> None:
    async def main(clock: ManualClock) -> None:
        star = Star(folder, clock, caps)
        async with star.hub, star.others[0] as one, star.others[1] as two:
            to_hub = [await pool.dial([f"{HUB}:7423"]) for pool in (one, two)]
            assert {link.peer for link in to_hub} == {star.hub.identity.peer}
            await star.recorders[0].until(lambda recorder: len(recorder.ups) == 2)
            await scene(star)

    run_on_manual_clock(main)


async def moved(links: list[Link]) -> list[int]:
    """Payload bytes that each link sent in SECONDS, while all had more to send than they may."""
    for link in links:
        for number in range(1, 20):
            link.post(BlockReply(request=number), PAYLOAD)
    await asyncio.sleep(5.0)
    before = [link.statistics().payload_sent for link in links]
    await asyncio.sleep(SECONDS)
    return [link.statistics().payload_sent - sent for link, sent in zip(links, before, strict=True)]


def test_without_a_cap_nothing_is_held_back(tmp_path: Path) -> None:
    async def scene(star: Star) -> None:
        for link in star.from_hub:
            for number in range(1, 5):
                link.post(BlockReply(request=number), PAYLOAD)
        for recorder in star.recorders[1:]:
            await recorder.until(lambda recorder: len(recorder.messages) == 4)

    play(tmp_path, scene)


def test_what_two_peers_pull_at_once_keeps_the_cap_and_is_shared(tmp_path: Path) -> None:
    async def scene(star: Star) -> None:
        sent = await moved(star.from_hub)
        assert sum(sent) == pytest.approx(RATE * SECONDS / ON_THE_WIRE, rel=0.02)
        assert sent[0] == pytest.approx(sent[1], rel=0.05)

    play(tmp_path, scene, up=RATE)


def test_what_two_peers_push_at_once_keeps_the_cap_and_is_shared(tmp_path: Path) -> None:
    async def scene(star: Star) -> None:
        links = [pool.links[star.hub.identity.peer] for pool in star.others]
        received = await moved(links)
        assert sum(received) == pytest.approx(RATE * SECONDS / ON_THE_WIRE, rel=0.1)
        assert received[0] == pytest.approx(received[1], rel=0.2)

    play(tmp_path, scene, down=RATE)


@pytest.mark.parametrize("caps", [{"up": RATE}, {"down": RATE}], ids=["up", "down"])
def test_control_passes_bulk_that_is_held_back(tmp_path: Path, caps: dict[str, int]) -> None:
    async def scene(star: Star) -> None:
        hub = star.hub.identity.peer
        sender = star.from_hub[0] if "up" in caps else star.others[0].links[hub]
        recorder = star.recorders[0 if "down" in caps else 1 + _index(star, sender)]
        for number in range(1, 10):
            sender.post(BlockReply(request=number), PAYLOAD)
        await asyncio.sleep(10.0)
        began = star.clock.elapsed()
        sender.post(BlockMissing(request=77))
        await recorder.until(lambda r: any(m == BlockMissing(request=77) for m, _ in r.messages))
        # Behind one bulk frame; where the receiver holds back, behind what the network in memory holds too.
        assert star.clock.elapsed() - began < (0.5 if "up" in caps else 3.0)
        assert all(not recorder.downs for recorder in star.recorders)

    play(tmp_path, scene, **caps)


def _index(star: Star, link: Link) -> int:
    return [pool.identity.peer for pool in star.others].index(link.peer)


def test_a_link_that_ends_gives_its_turn_back(tmp_path: Path) -> None:
    async def scene(star: Star) -> None:
        first, second = star.from_hub
        for link in (first, second):
            link.post(BlockReply(request=1), PAYLOAD)
        await asyncio.sleep(1.0)
        await first.aclose("enough")
        before = second.statistics().payload_sent
        await asyncio.sleep(2.0)
        sent = second.statistics().payload_sent - before
        assert sent == pytest.approx(2.0 * RATE / ON_THE_WIRE, rel=0.2)

    play(tmp_path, scene, up=RATE)
