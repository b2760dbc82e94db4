import asyncio

import pytest

from swarm.dht.addresses import Address
from swarm.errors import FailureError
from swarm.testing.clock import ManualClock
from swarm.testing.datagrams import MemoryDatagrams
from swarm.testing.loop import run_on_manual_clock

ONE, TWO = Address.of("10.0.0.1", 7423), Address.of("10.0.0.2", 7423)


async def received(network: MemoryDatagrams, count: int) -> list[tuple[bytes, Address]]:
    """What arrives at ``TWO`` of ``count`` numbered datagrams from ``ONE``."""
    arrived: list[tuple[bytes, Address]] = []
    one = await network.open((ONE.host,), ONE.port, lambda data, address: None)
    two = await network.open((TWO.host,), TWO.port, lambda *datagram: arrived.append(datagram))
    for number in range(count):
        one.send(number.to_bytes(2, "big"), TWO)
    await asyncio.sleep(1)
    one.close()
    two.close()
    return arrived


def test_a_sound_network_delivers_everything_once() -> None:
    async def main(clock: ManualClock) -> None:
        arrived = await received(MemoryDatagrams(), 100)
        assert sorted(arrived) == [(number.to_bytes(2, "big"), ONE) for number in range(100)]

    run_on_manual_clock(main)


def test_loss_and_duplication_come_at_their_rates_and_the_same_for_each_seed() -> None:
    async def main(clock: ManualClock) -> None:
        def make(seed: int) -> MemoryDatagrams:
            return MemoryDatagrams(seed=seed, loss=0.3, duplication=0.1)

        first, again, other = [await received(make(seed), 2000) for seed in (1, 1, 2)]
        assert first == again != other
        assert len({data for data, _ in first}) == pytest.approx(1400, rel=0.1)
        assert len(first) == pytest.approx(1540, rel=0.1)

    run_on_manual_clock(main)


def test_delay_passes_on_the_manual_clock() -> None:
    async def main(clock: ManualClock) -> None:
        network = MemoryDatagrams(delay=0.5)
        when: list[float] = []
        await network.open((TWO.host,), TWO.port, lambda *_: when.append(clock.elapsed()))
        network.transmit(b"", ONE, TWO)
        await asyncio.sleep(1)
        assert len(when) == 1
        assert 0.5 <= when[0] <= 0.6

    run_on_manual_clock(main)


@pytest.mark.parametrize("host", [ONE.host, TWO.host])
def test_an_unplugged_host_neither_sends_nor_receives(host: str) -> None:
    async def main(clock: ManualClock) -> None:
        network = MemoryDatagrams()
        network.unplugged.add(host)
        assert await received(network, 5) == []
        assert len(network.sent) == 5
        network.unplugged.clear()
        assert len(await received(network, 5)) == 5

    run_on_manual_clock(main)


def test_ports_are_taken_freed_and_chosen() -> None:
    async def main(clock: ManualClock) -> None:
        network = MemoryDatagrams()
        first = await network.open((ONE.host, "2001:db8::1"), 0, lambda *_: None)
        second = await network.open((ONE.host,), 0, lambda *_: None)
        assert first.port != second.port
        with pytest.raises(FailureError, match="taken"):
            await network.open((ONE.host,), first.port, lambda *_: None)
        first.close()
        first.close()
        await network.open(("2001:db8::1",), first.port, lambda *_: None)

    run_on_manual_clock(main)


def test_a_closed_or_broken_endpoint_and_a_missing_family_send_nothing() -> None:
    async def main(clock: ManualClock) -> None:
        network = MemoryDatagrams()
        endpoint = await network.open((ONE.host,), 1, lambda *_: None)
        endpoint.send(b"", Address.of("2001:db8::1", 1))
        endpoint.is_sound = False
        endpoint.send(b"", TWO)
        endpoint.is_sound = True
        endpoint.close()
        endpoint.send(b"", TWO)
        assert network.sent == []

    run_on_manual_clock(main)
