import asyncio
import socket
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from swarm.dht.addresses import Address
from swarm.dht.calls import Target
from swarm.dht.joining import GRACE_SECONDS, Joining, SeedAttempt
from swarm.errors import FailureError, MisuseError
from swarm.testing.clock import ManualClock
from swarm.testing.datagrams import MemoryDatagrams
from swarm.testing.loop import run_on_manual_clock

Run = Callable[..., None]


class Scene:
    def __init__(self, clock: ManualClock, make_bare: Any) -> None:
        self.clock = clock
        self.network = MemoryDatagrams()
        self.own = make_bare(self.network, clock, 1, storing=True)
        self.seed = make_bare(self.network, clock, 2, storing=True)
        self.other = make_bare(self.network, clock, 3, storing=True)

    async def join(
        self, *seeds: str, remembered: tuple[Target, ...] = (), deadline: float = 10.0
    ) -> tuple[SeedAttempt, ...]:
        joining = Joining(self.own.protocol.calls, clock=self.clock, deadline=deadline)
        return await joining.run(seeds, remembered)


@pytest.fixture
def run(make_bare: Any) -> Run:
    def runner(body: Callable[[Scene], Coroutine[Any, Any, None]]) -> None:
        async def main(clock: ManualClock) -> None:
            scene = Scene(clock, make_bare)
            for node in (scene.own, scene.seed, scene.other):
                await node.open()
            await body(scene)
            assert len(scene.own.protocol.calls) == 0
            assert len(asyncio.all_tasks()) == 1

        run_on_manual_clock(main)

    return runner


def test_each_seed_reports_address_family_answer_and_time(run: Run) -> None:
    async def body(scene: Scene) -> None:
        attempts = await scene.join("10.0.0.3:7423", "10.0.0.4:7423")
        assert [(one.seed, one.address, one.family, one.answered) for one in attempts] == [
            ("10.0.0.3:7423", "10.0.0.3:7423", "IPv4", True),
            ("10.0.0.4:7423", "10.0.0.4:7423", "IPv4", True),
        ]
        assert scene.seed.key.peer in attempts[0].answer
        assert attempts[0].elapsed == pytest.approx(0.044, abs=0.005)

    run(body)


def test_one_answer_is_enough_and_the_others_get_a_little_longer(run: Run) -> None:
    async def body(scene: Scene) -> None:
        started = scene.clock.elapsed()
        attempts = await scene.join("10.0.0.77:7423", "10.0.0.3:7423")
        assert scene.clock.elapsed() - started == pytest.approx(GRACE_SECONDS, abs=0.1)
        assert [one.answered for one in attempts] == [False, True]
        assert attempts[0].answer == "no answer"

    run(body)


def test_when_nobody_answers_the_verdict_is_one_line_that_names_each(run: Run) -> None:
    async def body(scene: Scene) -> None:
        remembered = Target(node=bytes(20), address=Address.of("10.0.0.88", 7423))
        started = scene.clock.elapsed()
        with pytest.raises(FailureError) as raised:
            await scene.join("10.0.0.77:7423", "[2001:db8::7]:7423", remembered=(remembered,))
        assert scene.clock.elapsed() - started == pytest.approx(10.0)
        sentence = str(raised.value)
        assert "\n" not in sentence
        assert "10.0.0.77:7423, IPv4): no answer" in sentence
        assert "[2001:db8::7]:7423, IPv6): there is no IPv6 from here" in sentence
        assert "1 remembered contacts: no answer" in sentence
        assert "clock" in sentence

    run(body)


def test_a_seed_that_comes_up_late_is_still_reached(run: Run) -> None:
    async def body(scene: Scene) -> None:
        host = scene.seed.address.host
        scene.network.unplugged.add(host)
        asyncio.get_running_loop().call_later(6.0, scene.network.unplugged.discard, host)
        [attempt] = await scene.join("10.0.0.3:7423")
        assert attempt.answered
        assert 6.0 < attempt.elapsed < 10.0

    run(body)


def test_a_remembered_contact_stands_in_for_seeds_that_are_gone(run: Run) -> None:
    async def body(scene: Scene) -> None:
        remembered = Target(node=scene.other.table.node.id, address=scene.other.address)
        attempts = await scene.join("10.0.0.77:7423", remembered=(remembered,))
        assert [(one.seed, one.answered) for one in attempts] == [
            ("10.0.0.77:7423", False),
            ("remembered contact", True),
        ]

    run(body)


def test_the_first_node_joins_nobody_and_that_is_no_failure(run: Run) -> None:
    async def body(scene: Scene) -> None:
        started = scene.clock.elapsed()
        assert await scene.join() == ()
        assert scene.clock.elapsed() == started
        [attempt] = await scene.join("10.0.0.2:7423")
        assert not attempt.answered
        assert attempt.answer == "is this node itself"
        assert scene.clock.elapsed() - started < 0.1

    run(body)


def test_a_node_that_finds_itself_waits_for_the_others_and_then_goes_on_alone(run: Run) -> None:
    async def body(scene: Scene) -> None:
        attempts = await scene.join("10.0.0.2:7423", "10.0.0.77:7423", deadline=3.0)
        assert [one.answer for one in attempts] == ["is this node itself", "no answer"]

    run(body)


def test_the_same_seed_twice_is_asked_once(run: Run) -> None:
    async def body(scene: Scene) -> None:
        assert len(await scene.join("10.0.0.3:7423", "10.0.0.3:7423")) == 1

    run(body)


def test_a_seed_that_is_no_address_is_the_users_to_mend(run: Run) -> None:
    async def body(scene: Scene) -> None:
        with pytest.raises(MisuseError, match="HOST:PORT"):
            await scene.join("10.0.0.3:7423", "nonsense")

    run(body)


def test_names_resolve_and_each_of_their_addresses_is_tried(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def getaddrinfo(host: str, port: int, *_: Any, **__: Any) -> list[Any]:
        assert host == "seed.example"
        return [
            (socket.AF_INET6, socket.SOCK_DGRAM, 17, "", ("2001:db8::9", port, 0, 0)),
            (socket.AF_INET, socket.SOCK_DGRAM, 17, "", ("10.0.0.3", port)),
        ]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)

    async def body(scene: Scene) -> None:
        attempts = await scene.join("seed.example:7423")
        assert [(one.seed, one.address, one.family, one.answered) for one in attempts] == [
            ("seed.example:7423", "[2001:db8::9]:7423", "IPv6", False),
            ("seed.example:7423", "10.0.0.3:7423", "IPv4", True),
        ]

    run(body)


def test_an_address_of_a_family_that_we_lack_is_not_waited_for(run: Run) -> None:
    async def body(scene: Scene) -> None:
        attempts = await scene.join("[2001:db8::7]:7423", "10.0.0.3:7423")
        assert attempts[0].answer == "there is no IPv6 from here"
        assert attempts[1].answered
        assert scene.clock.elapsed() < GRACE_SECONDS

    run(body)


def test_a_name_that_does_not_resolve_is_tried_again_and_named_in_the_end(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[str] = []

    def getaddrinfo(host: str, *_: Any, **__: Any) -> list[Any]:
        tries.append(host)
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)

    async def body(scene: Scene) -> None:
        with pytest.raises(FailureError, match=r"seed\.invalid:7423: does not resolve \(Name or service"):
            await scene.join("seed.invalid:7423")
        assert len(tries) > 2

    run(body)


def test_cancelling_a_join_leaves_nothing_behind(run: Run) -> None:
    async def body(scene: Scene) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(2.0):
                await scene.join("10.0.0.77:7423", "10.0.0.78:7423")

    run(body)
