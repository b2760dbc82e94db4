import asyncio
import logging
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from swarm.dht.discovery import Discovery, DiscoveryConfig
from swarm.dht.endpoint import UdpNetwork
from swarm.errors import FailureError, LocalError, MisuseError, RemoteProtocolError
from swarm.identity.keys import PrivateKey
from swarm.ids import SwarmId
from swarm.testing.clock import ManualClock
from swarm.testing.datagrams import MemoryDatagrams
from swarm.testing.loop import run_on_manual_clock

Body = Callable[[Any, MemoryDatagrams, ManualClock], Coroutine[Any, Any, None]]
Run = Callable[..., None]


@pytest.fixture
def run(make_peers: Any) -> Run:
    def runner(body: Body, **faults: Any) -> None:
        async def main(clock: ManualClock) -> None:
            errors: list[Any] = []
            asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
            network = MemoryDatagrams(**faults)
            await body(make_peers(clock, network), network, clock)
            assert errors == []

        run_on_manual_clock(main)

    return runner


async def everybody(swarm: list[Discovery]) -> list[int]:
    return [len(await peer.find()) for peer in swarm]


def test_twenty_peers_join_publish_and_find_each_other(run: Run) -> None:
    async def body(peers: Any, network: MemoryDatagrams, clock: ManualClock) -> None:
        swarm = await peers.swarm(20)
        assert await everybody(swarm) == [20] * 20
        record = next(one for one in await swarm[3].find() if one.addresses == (peers.seed(7),))
        assert record.peer == swarm[7]._publishing._key.peer
        assert await swarm[3].confirm()

    run(body)


def test_after_half_have_stopped_the_others_find_and_publish_as_before(run: Run) -> None:
    async def body(peers: Any, network: MemoryDatagrams, clock: ManualClock) -> None:
        swarm = await peers.swarm(20)
        for number in range(0, 20, 2):
            network.unplugged.add(peers.host(number))
        started = clock.elapsed()
        assert len(await swarm[1].find()) == 20
        assert clock.elapsed() - started < 1.5
        started = clock.elapsed()
        assert await swarm[3].publish([peers.seed(3)], "peer") == 9
        assert clock.elapsed() - started < 2.0
        clock.advance(60)
        for peer in swarm[1::2]:
            await peer.publish(["10.9.9.9:1"], "peer")
        clock.advance(1750)
        assert len(await swarm[1].find()) == 10

    run(body)


def test_with_emptied_storage_nothing_is_found_or_confirmed(run: Run) -> None:
    async def body(peers: Any, network: MemoryDatagrams, clock: ManualClock) -> None:
        swarm = await peers.swarm(20)
        for peer in swarm:
            peer.forget_records()
        assert await everybody(swarm) == [0] * 20
        assert not await swarm[3].confirm()

    run(body)


def test_confirmation_comes_from_the_network_and_not_from_our_own_copy(run: Run) -> None:
    async def body(peers: Any, network: MemoryDatagrams, clock: ManualClock) -> None:
        swarm = await peers.swarm(5)
        for peer in swarm[:4]:
            peer.forget_records()
        assert swarm[4].statistics().records > 0
        assert not await swarm[4].confirm()
        assert await swarm[4].publish([peers.seed(4)], "peer") == 4
        assert await swarm[4].confirm()
        for peer in swarm[:4]:
            network.unplugged.add(peers.host(swarm.index(peer)))
        assert not await swarm[4].confirm()

    run(body)


def test_another_epoch_key_gets_no_answer_and_changes_nothing(run: Run) -> None:
    async def body(peers: Any, network: MemoryDatagrams, clock: ManualClock) -> None:
        swarm = await peers.swarm(3)
        stranger = await peers.start(9, epoch=bytes(32))
        quiet = len(network.sent)
        with pytest.raises(FailureError, match="nobody answered"):
            await stranger.join([peers.seed(0), peers.seed(1)])
        assert {source.host for source, _, _ in network.sent[quiet:]} == {peers.host(9)}
        assert [peer.statistics().contacts for peer in swarm] == [2, 2, 2]
        assert swarm[0].statistics().datagrams["refused_tag"] > 0
        await stranger.publish([peers.seed(9)], "peer")
        assert await everybody(swarm) == [3] * 3

    run(body)


def test_a_peer_of_another_swarm_under_the_same_key_finds_and_leaves_nothing(run: Run) -> None:
    async def body(peers: Any, network: MemoryDatagrams, clock: ManualClock) -> None:
        swarm = await peers.swarm(3)
        other = await peers.start(9, swarm=SwarmId("b" * 32))
        await other.join([peers.seed(0)])
        assert await other.publish([peers.seed(9)], "peer") == 0
        assert len(await other.find()) == 1
        assert await everybody(swarm) == [3] * 3

    run(body)


def test_rotation_leaves_nobody_behind(run: Run) -> None:
    async def body(peers: Any, network: MemoryDatagrams, clock: ManualClock) -> None:
        swarm = await peers.swarm(6)
        for peer in swarm[:3]:
            peer.set_epoch(2, bytes([2]) * 32)
        assert await swarm[0].publish([peers.seed(0)], "peer") == 5
        assert await swarm[5].publish([peers.seed(5)], "peer") == 5
        for peer in swarm[3:]:
            peer.set_epoch(2, bytes([2]) * 32)
        for peer in swarm:
            peer.set_epoch(3, bytes([3]) * 32)
        assert await swarm[5].publish([peers.seed(5)], "peer") == 5
        assert await everybody(swarm) == [6] * 6

    run(body)


@pytest.mark.parametrize("seed", range(3))
def test_with_a_fifth_of_the_datagrams_lost_everybody_is_found(run: Run, seed: int) -> None:
    async def body(peers: Any, network: MemoryDatagrams, clock: ManualClock) -> None:
        swarm = await peers.swarm(20)
        assert await everybody(swarm) == [20] * 20

    run(body, loss=0.2, duplication=0.05, delay=0.04, seed=seed)


def test_departed_peers_are_not_found_after_their_record_has_expired(run: Run) -> None:
    async def body(peers: Any, network: MemoryDatagrams, clock: ManualClock) -> None:
        swarm = await peers.swarm(5, lifetime=600.0)
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(peer.run()) for peer in swarm]
            await asyncio.sleep(60)
            running[4].cancel()
            await swarm[4].aclose()
            await asyncio.sleep(1300)
            assert await everybody(swarm[:4]) == [4] * 4
            for task in running:
                task.cancel()

    run(body)


def test_the_report_of_a_join_says_what_each_seed_answered(run: Run) -> None:
    async def body(peers: Any, network: MemoryDatagrams, clock: ManualClock) -> None:
        await peers.swarm(4)
        peer = await peers.start(9)
        report = await peer.join([peers.seed(0), "10.0.0.200:7423"])
        assert report.contacts == 4
        assert [attempt.answered for attempt in report.attempts] == [True, False]
        assert report.elapsed >= report.attempts[1].elapsed
        assert "answered as" in str(report)
        assert "no answer" in str(report)

    run(body)


# ---- restarts and lost contacts -----------------------------------------------------------------


def test_a_restarted_peer_comes_back_through_those_it_remembers(run: Run, tmp_path: Path) -> None:
    async def body(peers: Any, network: MemoryDatagrams, clock: ManualClock) -> None:
        state = tmp_path / "contacts.json"
        await peers.swarm(5)
        peer = await peers.start(9, state=state)
        await peer.join([peers.seed(0)])
        await peer.aclose()
        network.unplugged.add(peers.host(0))
        peer = await peers.start(9, state=state)
        report = await peer.join([peers.seed(0)])
        assert [one.answered for one in report.attempts if one.seed == peers.seed(0)] == [False]
        assert len(await peer.find()) == 5

    run(body)


def test_a_restarted_bootstrap_node_without_seeds_finds_its_swarm_again(run: Run, tmp_path: Path) -> None:
    async def body(peers: Any, network: MemoryDatagrams, clock: ManualClock) -> None:
        first = await peers.start(0, state=tmp_path / "contacts.json")
        others = [await peers.start(number) for number in (1, 2)]
        for other in others:
            await other.join([peers.seed(0)])
            await other.publish(["10.0.0.9:1"], "peer")
        await first.aclose()
        first = await peers.start(0, state=tmp_path / "contacts.json")
        async with asyncio.TaskGroup() as group:
            running = group.create_task(first.run())
            await asyncio.sleep(1)
            assert len(await first.find()) == 2
            running.cancel()

    run(body)


def test_a_bootstrap_node_that_forgot_everything_is_found_again_by_its_peers(run: Run) -> None:
    async def body(peers: Any, network: MemoryDatagrams, clock: ManualClock) -> None:
        swarm = await peers.swarm(4)
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(peer.run()) for peer in swarm[1:]]
            await swarm[0].aclose()
            anew = await peers.start(0)
            await asyncio.sleep(310)
            assert anew.statistics().contacts == 3
            assert len(await anew.find()) == 4
            for task in running:
                task.cancel()

    run(body)


def test_seeds_that_are_gone_for_good_trouble_nobody(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def body(peers: Any, network: MemoryDatagrams, clock: ManualClock) -> None:
        swarm = await peers.swarm(4)
        await swarm[0].aclose()
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(peer.run()) for peer in swarm[1:]]
            await asyncio.sleep(1900)
            assert [peer.statistics().contacts for peer in swarm[1:]] == [2, 2, 2]
            assert await everybody(swarm[1:]) == [3, 3, 3]
            for task in running:
                task.cancel()

    with caplog.at_level(logging.INFO):
        run(body)
    assert caplog.text == ""


def test_when_the_line_was_down_for_long_the_peer_comes_back_by_itself(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def body(peers: Any, network: MemoryDatagrams, clock: ManualClock) -> None:
        swarm = await peers.swarm(4)
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(peer.run()) for peer in swarm]
            network.unplugged.add(peers.host(3))
            await asyncio.sleep(3600)
            assert swarm[3].statistics().contacts == 0
            network.unplugged.clear()
            await asyncio.sleep(120)
            assert swarm[3].statistics().contacts == 3
            assert len(await swarm[0].find()) == 4
            for task in running:
                task.cancel()

    with caplog.at_level(logging.INFO):
        run(body)
    assert caplog.text.count("no contact in the swarm") == 1
    assert "in touch with the swarm" in caplog.text


def test_a_lost_socket_is_opened_anew_on_the_same_port(run: Run) -> None:
    async def body(peers: Any, network: MemoryDatagrams, clock: ManualClock) -> None:
        swarm = await peers.swarm(3)
        async with asyncio.TaskGroup() as group:
            running = group.create_task(swarm[2].run())
            lost = swarm[2]._endpoint
            lost.is_sound = False
            assert not await swarm[2].confirm()
            await asyncio.sleep(6)
            assert swarm[2]._endpoint is not lost
            assert swarm[2].port == 7423
            assert await swarm[2].confirm()
            running.cancel()

    run(body)


def test_a_socket_that_stays_lost_is_tried_again(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def body(peers: Any, network: MemoryDatagrams, clock: ManualClock) -> None:
        swarm = await peers.swarm(2)
        async with asyncio.TaskGroup() as group:
            running = group.create_task(swarm[1].run())
            await asyncio.sleep(1)
            swarm[1]._endpoint.close()
            swarm[1]._endpoint.is_sound = False
            usurper = await network.open((peers.host(1),), 7423, lambda data, address: None)
            await asyncio.sleep(12)
            assert not await swarm[1].confirm()
            usurper.close()
            await asyncio.sleep(6)
            assert await swarm[1].confirm()
            running.cancel()

    with caplog.at_level(logging.WARNING):
        run(body)
    assert "still lost" in caplog.text


def test_closing_while_a_lost_socket_is_opened_anew_leaves_none_open(run: Run) -> None:
    async def body(peers: Any, network: MemoryDatagrams, clock: ManualClock) -> None:
        [peer] = await peers.swarm(1)
        open_now = network.open

        async def open_later(*args: Any) -> Any:
            endpoint = await open_now(*args)
            await asyncio.sleep(1)
            return endpoint

        network.open = open_later
        async with asyncio.TaskGroup() as group:
            running = group.create_task(peer.run())
            peer._endpoint.is_sound = False
            await asyncio.sleep(5.5)
            await peer.aclose()
            await asyncio.sleep(1)
            running.cancel()
        assert network._open == {}

    run(body)


def test_it_can_be_closed_and_started_again(run: Run) -> None:
    async def body(peers: Any, network: MemoryDatagrams, clock: ManualClock) -> None:
        swarm = await peers.swarm(3)
        await swarm[1].aclose()
        await swarm[1].aclose()
        with pytest.raises(LocalError, match="started"):
            _ = swarm[1].port
        await swarm[1].start()
        assert await swarm[1].publish([peers.seed(1)], "peer") == 2

    run(body)


def test_a_state_file_that_cannot_be_written_is_reported_and_no_more(
    run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def body(peers: Any, network: MemoryDatagrams, clock: ManualClock) -> None:
        await peers.swarm(2)
        peer = await peers.start(9, state=tmp_path / "missing" / "contacts.json")
        await peer.join([peers.seed(0)])
        await peer.aclose()

    with caplog.at_level(logging.WARNING):
        run(body)
    assert "cannot be remembered" in caplog.text


# ---- misuse, and what it says -------------------------------------------------------------------


def test_a_taken_port_is_refused_in_one_line(run: Run) -> None:
    async def body(peers: Any, network: MemoryDatagrams, clock: ManualClock) -> None:
        await peers.start(0)
        with pytest.raises(FailureError, match=r"^port 7423 \(UDP\) is taken"):
            await peers.start(0)

    run(body)


def test_joining_before_there_is_a_key_is_a_mistake_of_ours(
    run: Run, make_key: Callable[[int], PrivateKey], swarm: SwarmId
) -> None:
    async def body(peers: Any, network: MemoryDatagrams, clock: ManualClock) -> None:
        config = DiscoveryConfig(swarm=swarm, listen=("10.0.0.1",))
        peer = Discovery(config, key=make_key(1), clock=clock, network=network)
        await peer.start()
        with pytest.raises(LocalError, match="epoch key"):
            await peer.join(["10.0.0.2:7423"])

    run(body)


def test_before_there_is_a_key_its_chores_wait(
    run: Run, make_key: Callable[[int], PrivateKey], swarm: SwarmId, tmp_path: Path
) -> None:
    async def body(peers: Any, network: MemoryDatagrams, clock: ManualClock) -> None:
        state = tmp_path / "contacts.json"
        await peers.swarm(2)
        first = await peers.start(9, state=state)
        await first.join([peers.seed(0)])
        await first.aclose()
        config = DiscoveryConfig(swarm=swarm, listen=(peers.host(9),), state=state)
        peer = Discovery(config, key=make_key(10), clock=clock, network=network)
        await peer.start()
        async with asyncio.TaskGroup() as group:
            running = group.create_task(peer.run())
            await asyncio.sleep(100)
            assert peer.statistics().calls == 0
            peer.set_epoch(1, bytes(range(32)))
            await asyncio.sleep(20)
            assert peer.statistics().contacts == 2
            running.cancel()

    run(body)


def test_an_epoch_key_of_another_length_is_the_senders_fault(run: Run) -> None:
    async def body(peers: Any, network: MemoryDatagrams, clock: ManualClock) -> None:
        peer = await peers.start(0)
        with pytest.raises(RemoteProtocolError):
            peer.set_epoch(2, b"short")

    run(body)


def test_a_seed_that_is_no_address_is_the_users_to_mend(run: Run) -> None:
    async def body(peers: Any, network: MemoryDatagrams, clock: ManualClock) -> None:
        peer = await peers.start(0)
        with pytest.raises(MisuseError, match="HOST:PORT"):
            await peer.join(["somewhere"])

    run(body)


@pytest.mark.parametrize("changes", [{"listen": ()}, {"lifetime": 0.0}, {"lifetime": 7201.0}])
def test_a_configuration_that_makes_no_sense_is_a_mistake_of_ours(
    swarm: SwarmId, changes: dict[str, Any]
) -> None:
    with pytest.raises(LocalError):
        DiscoveryConfig(swarm=swarm, **changes)


def test_without_a_network_it_uses_this_machines(
    swarm: SwarmId, make_key: Callable[[int], PrivateKey]
) -> None:
    peer = Discovery(DiscoveryConfig(swarm=swarm), key=make_key(1), clock=ManualClock())
    assert isinstance(peer._network, UdpNetwork)


def test_statistics_count_what_happened(run: Run) -> None:
    async def body(peers: Any, network: MemoryDatagrams, clock: ManualClock) -> None:
        swarm = await peers.swarm(3)
        numbers = swarm[1].statistics()
        assert numbers.contacts == 2
        assert numbers.records == 2 * 3
        assert numbers.stored_bytes > 2 * 3 * 150
        assert numbers.confirmed == 2
        assert numbers.calls > 0
        assert numbers.calls_unanswered == numbers.calls_repeated == 0
        assert numbers.datagrams["sent"] > 0
        assert numbers.datagrams["received"] > 0

    run(body)
