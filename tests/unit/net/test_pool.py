"""Pools over the in-memory network, on a manual clock: who gets a link with whom, and how links end."""

import asyncio
import contextlib
import functools
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from swarm import clock as system
from swarm.errors import FailureError, LinkLostError, MisuseError, RemoteProtocolError, RemoteRefusalError
from swarm.identity.admission import check_admission
from swarm.identity.chain import Member
from swarm.identity.keys import PrivateKey
from swarm.identity.rights import CONTRIBUTE_ONLY
from swarm.identity.uses import UseLedger
from swarm.net.handlers import Handlers
from swarm.net.link import Link
from swarm.net.memory import MemoryNetwork
from swarm.net.pool import Pool
from swarm.protocol.session_meters import HEARTBEAT_SECONDS
from swarm.protocol.trust import MAX_OFFENCES, MAX_STRIKES
from swarm.testing.clock import ManualClock
from swarm.testing.loop import run_on_manual_clock
from swarm.testing.pools import Pools, Recorder
from swarm.wire import frames
from swarm.wire.limits import MAX_HANDSHAKES, MAX_HANDSHAKES_PER_ADDRESS
from swarm.wire.messages.base import Message
from swarm.wire.messages.blocks import BlockMissing, BlockReply, BlockRequest

ALICE, BOB = "alice:7423", "bob:7423"
LATENCY = 0.02


class World:
    """A swarm on one in-memory network."""

    def __init__(self, folder: Path, clock: ManualClock) -> None:
        clock.set_wall(system.wall())  # OpenSSL judges certificates by the system's clock
        self.clock = clock
        self.network = MemoryNetwork(latency=LATENCY)
        self.pools = Pools(folder, clock=clock)
        self.recorders: dict[str, Recorder] = {}

    def pool(self, host: str, **options: object) -> Pool:
        """A pool at ``host``, whose handlers are in ``recorders``."""
        recorder = self.recorders[host] = Recorder()
        return self.pools.pool(self.network.host(host), handlers=recorder, **options)  # type: ignore[arg-type]


Scene = Callable[[World], Awaitable[None]]


def scene(story: Scene) -> Callable[[Path], None]:
    """Run an asynchronous test in a world of its own, where nobody waits for real."""

    @functools.wraps(story)
    def test(tmp_path: Path) -> None:
        async def main(clock: ManualClock) -> None:
            await story(World(tmp_path, clock))

        run_on_manual_clock(main)

    del test.__wrapped__  # type: ignore[attr-defined]  # or pytest looks for a fixture `world`
    return test


def request(number: int) -> Message:
    return BlockRequest(request=number, digest="a" * 52)


# Coming up.


@scene
async def test_a_call_gives_both_ends_a_link_that_knows_the_other(world: World) -> None:
    async with world.pool("alice") as alice, world.pool("bob") as bob:
        bob.addresses = ("bob.example:7423",)
        link = await bob.dial([ALICE])
        alices, bobs = world.recorders["alice"], world.recorders["bob"]
        await alices.until(lambda r: len(r.ups) == 1)
        assert bobs.ups == [link]
        assert link.peer == alice.identity.peer
        assert link.member == alice.identity.member
        assert (link.dialed, link.address, link.path) == (True, ALICE, "direct")
        other = alices.ups[0]
        assert other.peer == bob.identity.peer
        assert (other.dialed, other.path) == (False, "direct")
        assert other.hello.addresses == ("bob.example:7423",)
        assert link.accept.observed == other.address
        assert dict(bob.links) == {link.peer: link}
        assert "up" in str(link)


@scene
async def test_messages_and_payloads_arrive(world: World) -> None:
    async with world.pool("alice"), world.pool("bob") as bob:
        link = await bob.dial([ALICE])
        payload = bytes(range(256)) * 8000
        sending = link.post(BlockReply(request=1), payload)
        link.post(request(2))
        await sending.wait()
        await world.recorders["alice"].until(lambda r: len(r.messages) == 2)
        assert world.recorders["alice"].messages == [(request(2), b""), (BlockReply(request=1), payload)]
        statistics = link.statistics()
        assert statistics.payload_sent == len(payload)
        assert statistics.rtt == pytest.approx(2 * LATENCY, rel=0.1)
        assert statistics.bytes_sent > len(payload)


@scene
async def test_a_payload_of_any_layout_is_sent_as_its_bytes(world: World) -> None:
    async with world.pool("alice"), world.pool("bob") as bob:
        link = await bob.dial([ALICE])
        grid = memoryview(bytes(range(24))).cast("B", (4, 6))
        link.post(BlockReply(request=1), grid)
        link.post(BlockReply(request=2), memoryview(bytes(16)).cast("d"))
        link.post(BlockReply(request=3), bytearray())
        await world.recorders["alice"].until(lambda r: len(r.messages) == 3)
        assert sorted(payload for _, payload in world.recorders["alice"].messages) == [
            b"",
            bytes(16),
            bytes(range(24)),
        ]


@scene
async def test_simultaneous_calls_settle_on_the_one_of_the_lower_peer(world: World) -> None:
    for _ in range(4):
        async with world.pool("alice") as alice, world.pool("bob") as bob:
            alices, bobs = await asyncio.gather(alice.dial([BOB]), bob.dial([ALICE]))
            assert alices is alice.links[bob.identity.peer]
            assert bobs is bob.links[alice.identity.peer]
            assert alices.dialed != bobs.dialed
            assert alices.dialed == (alice.identity.peer < bob.identity.peer)
            await asyncio.sleep(30.0)
            assert len(world.network.connections()) == 1
            for host in ("alice", "bob"):
                assert len(world.recorders[host].ups) == 1
                assert world.recorders[host].downs == []


@scene
async def test_calling_a_linked_peer_gives_the_link_that_there_is(world: World) -> None:
    async with world.pool("alice") as alice, world.pool("bob") as bob:
        link = await bob.dial([ALICE])
        await world.recorders["alice"].until(lambda r: bool(r.ups))
        assert await bob.dial([ALICE], expect=alice.identity.peer) is link
        assert await bob.dial([ALICE]) is link
        back = await alice.dial([BOB])
        assert back is world.recorders["alice"].ups[0]
        await asyncio.sleep(30.0)
        assert len(world.network.connections()) == 1
        assert len(world.recorders["bob"].ups) == len(world.recorders["alice"].ups) == 1


@scene
async def test_many_calls_at_once_give_one_link(world: World) -> None:
    async with world.pool("alice"), world.pool("bob") as bob:
        links = await asyncio.gather(*(bob.dial([ALICE]) for _ in range(5)))
        assert len(set(links)) == 1


@scene
async def test_the_first_address_that_answers_is_taken(world: World) -> None:
    async with world.pool("alice") as alice, world.pool("bob") as bob:
        link = await bob.dial(["nowhere:1", ALICE], expect=alice.identity.peer)
        assert link.address == ALICE
        tried = [(call.address, call.answer) for call in bob.attempts(alice.identity.peer)]
        assert tried == [("nowhere:1", "does not listen (connection refused)"), (ALICE, "")]


# Not coming up.


@scene
async def test_an_error_lists_each_address_and_what_it_answered(world: World) -> None:
    async with world.pool("bob") as bob:
        with pytest.raises(FailureError) as caught:
            await bob.dial(["nowhere:1", "[2001:db8::1]:7423"])
        assert str(caught.value) == (
            "nowhere:1 (0.0 s) does not listen (connection refused); "
            "[2001:db8::1]:7423 (0.0 s) does not listen (connection refused)"
        )
        with pytest.raises(FailureError, match="there is no address to call"):
            await bob.dial([])
        with pytest.raises(MisuseError, match="'nonsense' is not an address"):
            await bob.dial(["nonsense"])


@scene
async def test_a_peer_of_another_swarm_is_named_as_such_at_both_ends(world: World) -> None:
    async with world.pool("alice"):
        other = World(world.pools._folder / "other", world.clock)
        other.network = world.network
        async with other.pool("mallory") as mallory:
            with pytest.raises(RemoteRefusalError) as caught:
                await mallory.dial([ALICE])
            assert caught.value.code == "wrong-swarm"
            assert str(caught.value) == f"{ALICE} (0.1 s) belongs to another swarm than this peer's invite"
        await asyncio.sleep(5.0)
        assert world.recorders["alice"].ups == []
        assert world.network.connections() == ()


@scene
async def test_another_peer_than_the_expected_one_is_not_linked(world: World) -> None:
    async with world.pool("alice") as alice, world.pool("bob") as bob:
        expected = PrivateKey.generate().peer
        with pytest.raises(
            RemoteRefusalError, match=rf"{ALICE} \(0\.1 s\) is {alice.identity.peer[:8]}, and {expected[:8]}"
        ):
            await bob.dial([ALICE], expect=expected)
        await asyncio.sleep(5.0)
        assert not alice.links
        assert not bob.links


@scene
async def test_a_peer_does_not_link_with_itself(world: World) -> None:
    async with world.pool("alice") as alice:
        with pytest.raises(RemoteRefusalError, match="the address is this peer's own"):
            await alice.dial([ALICE])
        assert not alice.links


@scene
async def test_an_expired_invite_is_refused_in_one_line(world: World) -> None:
    late = world.pools.identity(world.pools.invite(join_by=world.clock.wall() + 60.0))
    world.clock.advance(3600.0)
    async with world.pool("alice"), world.pool("bob", identity=late) as bob:
        with pytest.raises(RemoteRefusalError) as caught:
            await bob.dial([ALICE])
        assert caught.value.code == "invite-expired"
        assert str(caught.value).startswith(
            f"{ALICE} (0.1 s) refused this peer: your invite had to be used by "
        )


@scene
async def test_a_full_pool_says_so(world: World) -> None:
    async with world.pool("alice", links=1), world.pool("bob") as bob, world.pool("carol") as carol:
        await bob.dial([ALICE])
        with pytest.raises(
            RemoteRefusalError, match="refused this peer: I have 1 links, and that is my limit"
        ):
            await carol.dial([ALICE])


@scene
async def test_one_invite_in_many_hands_does_not_shut_out_others(world: World) -> None:
    flood = world.pools.invite(rights=CONTRIBUTE_ONLY)
    async with world.pool("alice", links=4) as alice, contextlib.AsyncExitStack() as stack:
        for number in range(4):
            pool = world.pool(f"mallory{number}", identity=world.pools.identity(flood))
            await (await stack.enter_async_context(pool)).dial([ALICE])
        async with world.pool("bob") as bob:
            await bob.dial([ALICE])
            await world.recorders["mallory3"].until(lambda r: bool(r.downs))
            (reason,) = [reason for _, reason in world.recorders["mallory3"].downs]
            assert reason == "left: I have 4 links, and your invite has more of them than another"
            await world.recorders["alice"].until(lambda _: bob.identity.peer in alice.links)
            assert len(alice.links) == 4


@scene
async def test_an_address_that_accepts_and_says_nothing_is_given_up(world: World) -> None:
    listener = await world.network.host("mute").listen("", 7423, asyncio.Protocol)
    async with world.pool("bob") as bob:
        with pytest.raises(
            FailureError, match=r"mute:7423 \(10\.0 s\) did not finish the TLS handshake within 10 s"
        ):
            await bob.dial(["mute:7423"])
    listener.close()


@scene
async def test_a_call_can_be_given_up(world: World) -> None:
    async with world.pool("alice") as alice, world.pool("bob") as bob:
        for seconds in (0.01, 0.05, 0.07, 0.09, 0.11, 0.119):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(seconds):
                    await bob.dial([ALICE])
        await asyncio.sleep(30.0)
        assert world.network.connections() == ()
        assert not alice.links
        assert await bob.dial([ALICE])


@scene
async def test_a_closing_pool_calls_nobody(world: World) -> None:
    async with world.pool("alice"), world.pool("bob") as bob:
        await bob.aclose("enough")
        with pytest.raises(FailureError, match="this program ends"):
            await bob.dial([ALICE])


@scene
async def test_a_taken_port_is_said_with_the_remedy(world: World) -> None:
    async with world.pool("alice"):
        with pytest.raises(FailureError, match=r"alice:7423 is taken .* give --listen HOST:PORT"):
            await world.pool("alice").__aenter__()


@scene
async def test_a_pool_can_be_entered_again(world: World) -> None:
    alice = world.pool("alice")
    async with world.pool("bob") as bob:
        for _ in range(2):
            async with alice:
                assert (await bob.dial([ALICE])).peer == alice.identity.peer
            await world.recorders["bob"].until(lambda r: len(r.downs) == len(r.ups))


# Admission.


@scene
async def test_a_newcomer_gets_its_admission(world: World) -> None:
    ledger = UseLedger()
    newcomer = world.pools.identity(world.pools.invite(rights=CONTRIBUTE_ONLY, uses=1))
    async with (
        world.pool("alice", ledger=ledger, role="bootstrap"),
        world.pool("bob", identity=newcomer) as bob,
    ):
        link = await bob.dial([ALICE])
        assert link.hello.role == "bootstrap"
        assert bob.identity.admission == link.accept.admission
        check_admission(
            bob.identity.admission,
            authority=newcomer.authority,
            member=newcomer.member,
            now=world.clock.wall(),
        )
        assert [m.peer for m in world.recorders["alice"].admitted] == [bob.identity.peer]
        assert ledger.peers(newcomer.member.invite) == (bob.identity.peer,)


@scene
async def test_whom_it_was_linked_with_it_has_met(world: World) -> None:
    async with world.pool("alice") as alice, world.pool("bob") as bob, world.pool("carol") as carol:
        link = await bob.dial([ALICE])
        await link.aclose("enough")
        assert bob.has_met(alice.identity.peer)
        assert not bob.has_met(carol.identity.peer)


# Going down.


@scene
async def test_a_goodbye_says_why_and_is_heard_at_once(world: World) -> None:
    async with world.pool("alice") as alice, world.pool("bob") as bob:
        link = await bob.dial([ALICE])
        sending = link.post(BlockReply(request=1), bytes(2_000_000))
        await link.aclose("Ctrl+C")
        assert world.recorders["bob"].downs == [(alice.identity.peer, "was hung up on: Ctrl+C")]
        await world.recorders["alice"].until(lambda r: bool(r.downs))
        assert world.recorders["alice"].downs == [(bob.identity.peer, "left: Ctrl+C")]
        with pytest.raises(LinkLostError):
            await sending.wait()
        with pytest.raises(LinkLostError, match="Ctrl"):
            link.post(request(1))
        assert not alice.links
        assert not bob.links


@scene
async def test_leaving_the_pool_says_goodbye_to_all(world: World) -> None:
    async with world.pool("alice"):
        async with world.pool("bob") as bob, world.pool("carol") as carol:
            await bob.dial([ALICE])
            await carol.dial([ALICE])
            before = world.clock.elapsed()
        assert world.clock.elapsed() - before < 1.0
        await world.recorders["alice"].until(lambda r: len(r.downs) == 2)
        assert {reason for _, reason in world.recorders["alice"].downs} == {"left: its program ended"}


@scene
async def test_leaving_takes_under_two_seconds_where_nobody_answers(world: World) -> None:
    async with world.pool("alice"):
        async with world.pool("bob") as bob:
            await bob.dial([ALICE])
            world.network.connections()[0].freeze()
            before = world.clock.elapsed()
        assert world.clock.elapsed() - before < 2.0


@scene
async def test_a_cut_connection_is_noticed_at_once_at_both_ends(world: World) -> None:
    async with world.pool("alice"), world.pool("bob") as bob:
        link = await bob.dial([ALICE])
        await world.recorders["alice"].until(lambda r: bool(r.ups))
        sending = link.post(BlockReply(request=1), bytes(2_000_000))
        await asyncio.sleep(1.5 * LATENCY)
        before = world.clock.elapsed()
        world.network.connections()[0].cut()
        for host in ("alice", "bob"):
            await world.recorders[host].until(lambda r: bool(r.downs))
            assert world.recorders[host].downs[0][1] == "was lost (connection reset by peer)"
        assert world.clock.elapsed() == before
        with pytest.raises(LinkLostError, match="was lost"):
            await sending.wait()
        assert world.recorders["alice"].messages == []


@scene
async def test_a_frozen_connection_is_given_up_after_three_heartbeats(world: World) -> None:
    async with world.pool("alice"), world.pool("bob") as bob:
        link = await bob.dial([ALICE])
        await asyncio.sleep(1.0)
        heard = link.statistics().last_heard
        world.network.connections()[0].freeze()
        await world.recorders["bob"].until(lambda r: bool(r.downs))
        assert 8.0 < world.clock.elapsed() - heard < 3 * HEARTBEAT_SECONDS
        assert world.recorders["bob"].downs[0][1] == "was silent for 8.7 s"


@scene
async def test_an_idle_link_stays_up(world: World) -> None:
    async with world.pool("alice"), world.pool("bob") as bob:
        link = await bob.dial([ALICE])
        await asyncio.sleep(3 * 3600.0)
        assert link.end is None
        assert world.recorders["alice"].downs == world.recorders["bob"].downs == []


# Restarts and second copies.


@scene
async def test_a_restarted_peer_takes_the_place_of_its_dead_link(world: World) -> None:
    identity = world.pools.identity()
    async with world.pool("alice") as alice, world.pool("bob", identity=identity) as bob:
        await bob.dial([ALICE])
        first = world.recorders["alice"]
        await first.until(lambda r: bool(r.ups))
        world.network.connections()[0].freeze()  # as if bob's power had failed
        async with world.pool("bob", identity=identity, listen=("", 7424)) as again:
            before = world.clock.elapsed()
            link = await again.dial([ALICE])
            assert world.clock.elapsed() - before < 5.0
            await first.until(lambda r: len(r.ups) == 2)
            assert first.downs == [
                (identity.peer, "was hung up on: it did not answer, and a newer link takes its place")
            ]
            assert alice.links[identity.peer] is first.ups[1]
            assert link.peer == alice.identity.peer


@scene
async def test_a_second_copy_is_refused_while_the_first_lives(world: World) -> None:
    identity = world.pools.identity()
    async with (
        world.pool("alice") as alice,
        world.pool("bob", identity=identity) as bob,
        world.pool("copy", identity=identity) as copy,
    ):
        await bob.dial([ALICE])
        with pytest.raises(RemoteRefusalError) as caught:
            await copy.dial([ALICE])
        assert caught.value.code == "duplicate"
        assert "another program with this identity is running: stop one" in str(caught.value)
        assert world.recorders["alice"].downs == []
        assert alice.links[identity.peer] is world.recorders["alice"].ups[0]
        with pytest.raises(RemoteRefusalError, match="another program with this identity is running"):
            await copy.dial([BOB])


@scene
async def test_a_peer_that_noticed_the_loss_first_can_call_again(world: World) -> None:
    async with world.pool("alice") as alice, world.pool("bob") as bob:
        await bob.dial([ALICE])
        await world.recorders["alice"].until(lambda r: bool(r.ups))
        (connection,) = world.network.connections()
        connection.freeze()
        end = connection.near if connection.hosts[0] == "bob" else connection.far
        end.lose(ConnectionResetError("connection reset by peer"))
        await world.recorders["bob"].until(lambda r: bool(r.downs))
        before = world.clock.elapsed()
        assert await bob.dial([ALICE])
        assert world.clock.elapsed() - before < 5.0
        await world.recorders["alice"].until(lambda r: len(r.ups) == 2)
        assert len(alice.links) == len(bob.links) == 1


# Handlers.


@scene
async def test_a_peer_charged_by_a_service_is_told_and_dropped(world: World) -> None:
    async with world.pool("alice"), world.pool("bob") as bob:
        link = await bob.dial([ALICE])

        def complain(_: Message) -> None:
            raise RemoteProtocolError("block 7 is not what its name says")

        world.recorders["alice"].on_arrival = complain
        link.post(request(1))
        for host in ("alice", "bob"):
            await world.recorders[host].until(lambda r: bool(r.downs))
        assert world.recorders["alice"].downs[0][1] == (
            "broke the protocol: block 7 is not what its name says"
        )
        assert world.recorders["bob"].downs[0][1] == (
            "says that this peer broke the protocol: block 7 is not what its name says"
        )


class Complainer(Recorder):
    """Finds fault with the other side in one of its callbacks."""

    def __init__(self, callback: str) -> None:
        super().__init__()
        self.callback = callback

    def _complain_in(self, callback: str) -> None:
        if callback == self.callback:
            raise RemoteProtocolError("that does not hold")

    def on_up(self, link: Link) -> None:
        super().on_up(link)
        self._complain_in("on_up")

    def on_down(self, link: Link, reason: str) -> None:
        super().on_down(link, reason)
        self._complain_in("on_down")

    def on_message(self, link: Link, message: Message, payload: memoryview) -> None:
        super().on_message(link, message, payload)
        self._complain_in("on_message")

    def on_offer(self, link: Link, message: Message, size: int) -> str:
        self._complain_in("on_offer")
        return super().on_offer(link, message, size)

    def on_admitted(self, member: Member, credentials: bytes) -> None:
        super().on_admitted(member, credentials)
        self._complain_in("on_admitted")


@pytest.mark.parametrize("callback", ["on_up", "on_down", "on_message", "on_offer", "on_admitted"])
def test_what_the_other_side_did_wrong_ends_its_link_in_whatever_callback_it_shows(
    tmp_path: Path, callback: str
) -> None:
    @scene
    async def story(world: World) -> None:
        complainer = Complainer(callback)
        alice = world.pools.pool(world.network.host("alice"), handlers=complainer)
        async with alice, world.pool("bob", identity=world.pools.identity(world.pools.invite(uses=1))) as bob:
            with contextlib.suppress(FailureError, RemoteRefusalError):
                link = await bob.dial([ALICE])
                link.post(BlockReply(request=1), bytes(5))
                link.post(request(2))
                await asyncio.sleep(1.0)
                await link.aclose("enough")
            await asyncio.sleep(1.0)
            assert not alice.links
            wrong = "broke the protocol: that does not hold"
            expected = {"on_down": ["left: enough"], "on_admitted": []}.get(callback, [wrong])
            assert [reason for _, reason in complainer.downs] == expected
            complainer.callback = ""
            async with world.pool("carol") as carol:
                await carol.dial([ALICE])
                await complainer.until(lambda _: len(alice.links) == 1)

    story(tmp_path)


@scene
async def test_payloads_that_nobody_asked_for_are_refused(world: World) -> None:
    alice = world.pools.pool(world.network.host("alice"), handlers=Plain())
    async with alice, world.pool("bob") as bob:
        link = await bob.dial([ALICE])
        refused = link.post(BlockReply(request=1), bytes(16_000_000))
        with pytest.raises(RemoteRefusalError, match="nobody here takes a BlockReply"):
            await refused.wait()


@scene
async def test_who_does_too_much_in_vain_is_dropped(world: World) -> None:
    alice = world.pools.pool(world.network.host("alice"), handlers=Plain())
    async with alice, world.pool("bob") as bob:
        link = await bob.dial([ALICE])
        for number in range(MAX_STRIKES + 1):
            link.post(BlockReply(request=number), b"x")
        await world.recorders["bob"].until(lambda r: bool(r.downs))
        (reason,) = [reason for _, reason in world.recorders["bob"].downs]
        wrong = "once too often, nobody here takes a BlockReply"
        assert reason == f"says that this peer broke the protocol: {wrong}"


@scene
async def test_who_answers_pings_that_nobody_sent_again_and_again_is_dropped(world: World) -> None:
    async with world.pool("alice"), world.pool("bob") as bob:
        link = await bob.dial([ALICE])
        link._channel.send(frames.pong_frame(bytes(8)) * (MAX_STRIKES + 1), b"")
        await world.recorders["bob"].until(lambda r: bool(r.downs))
        (reason,) = [reason for _, reason in world.recorders["bob"].downs]
        wrong = "once too often, a ping was answered that nobody had sent"
        assert reason == f"says that this peer broke the protocol: {wrong}"


@scene
async def test_calling_again_wipes_out_nothing_and_ends_in_a_ban(world: World) -> None:
    alice = world.pools.pool(world.network.host("alice"), handlers=Plain())
    async with alice, world.pool("bob") as bob:
        heard = world.recorders["bob"]
        for useless in (MAX_STRIKES + 1, *[100] * MAX_OFFENCES):
            link = await bob.dial([ALICE])
            before = len(heard.downs)
            for number in range(useless):
                link.post(BlockReply(request=number), b"x")
            await heard.until(lambda r, before=before: len(r.downs) > before)  # type: ignore[misc]
        assert {reason for _, reason in heard.downs} == {
            "says that this peer broke the protocol: once too often, nobody here takes a BlockReply"
        }
        with pytest.raises(RemoteRefusalError, match="you broke the protocol again and again") as caught:
            await bob.dial([ALICE])
        assert caught.value.code == "banned"
        async with world.pool("carol") as carol:
            assert await carol.dial([ALICE])


@scene
async def test_who_is_revoked_between_the_hello_and_the_link_is_not_linked(
    world: World,
) -> None:
    async with world.pool("alice") as alice, world.pool("bob") as bob:
        authority, introduced = world.pools.authority, alice._arbiter.introduced

        def revoke_first(link: Link, **named: Any) -> None:
            authority.revoke(peers=[bob.identity.peer], invites=(), now=world.clock.wall())
            known = authority.revocations
            assert alice.reception.revocations.learn_all(known.lists, known.epoch_key)
            introduced(link, **named)

        alice._arbiter.introduced = revoke_first  # type: ignore[method-assign]
        with contextlib.suppress(RemoteRefusalError, FailureError):
            await bob.dial([ALICE])
        await asyncio.sleep(1.0)
        assert world.recorders["alice"].ups == []
        assert alice.links == {}
        assert bob.links == {}
        alice._arbiter.introduced = introduced  # type: ignore[method-assign]
        with pytest.raises(RemoteRefusalError, match="the organiser revoked you"):
            await bob.dial([ALICE])


class Plain(Handlers):
    """What no program does with links."""

    def on_up(self, link: Link) -> None:
        pass

    def on_down(self, link: Link, reason: str) -> None:
        pass

    def on_message(self, link: Link, message: Message, payload: memoryview) -> None:
        raise AssertionError("nothing should come")


async def test_a_bug_in_a_service_ends_the_pool(tmp_path: Path) -> None:
    world = World(tmp_path, ManualClock())
    world.network.latency = 0.0

    def fail(_: Message) -> None:
        raise ZeroDivisionError("a bug")

    async def run() -> None:
        async with world.pool("bob") as bob, world.pool("alice"):
            world.recorders["alice"].on_arrival = fail
            link = await bob.dial([ALICE])
            link.post(request(1))
            await asyncio.get_running_loop().create_future()

    with pytest.raises(ExceptionGroup) as caught:
        await run()
    assert caught.group_contains(ZeroDivisionError)
    assert world.recorders["bob"].downs


@scene
async def test_an_unwanted_payload_is_refused_before_it_comes(world: World) -> None:
    async with world.pool("alice"), world.pool("bob") as bob:
        link = await bob.dial([ALICE])
        world.recorders["alice"].unwanted = "for another incarnation"
        refused = link.post(BlockReply(request=1), bytes(16_000_000))
        with pytest.raises(RemoteRefusalError, match="for another incarnation"):
            await refused.wait()
        assert link.statistics().payload_sent < 4_000_000
        link.post(BlockMissing(request=2))
        await world.recorders["alice"].until(lambda r: bool(r.messages))
        assert world.recorders["alice"].messages == [(BlockMissing(request=2), b"")]


@scene
async def test_a_cancelled_sending_never_arrives(world: World) -> None:
    async with world.pool("alice"), world.pool("bob") as bob:
        link = await bob.dial([ALICE])
        cancelled = link.post(BlockReply(request=1), bytes(16_000_000))
        await asyncio.sleep(LATENCY)
        cancelled.cancel()
        cancelled.cancel()
        with pytest.raises(LinkLostError, match="the sending was cancelled"):
            await cancelled.wait()
        kept = link.post(BlockReply(request=2), b"x")
        await kept.wait()
        assert kept.done
        await world.recorders["alice"].until(lambda r: bool(r.messages))
        assert world.recorders["alice"].messages == [(BlockReply(request=2), b"x")]
        assert link.statistics().sending == 0


# Strangers.


@scene
async def test_half_open_connections_are_bounded_and_end(world: World) -> None:
    async with world.pool("alice") as alice, world.pool("bob") as bob:
        for _ in range(3 * MAX_HANDSHAKES_PER_ADDRESS):
            await world.network.host("mallory").connect(alice.listening[0], asyncio.Protocol)
        await asyncio.sleep(1.0)
        assert len(world.network.connections("mallory")) == MAX_HANDSHAKES_PER_ADDRESS
        assert await bob.dial([ALICE])
        await asyncio.sleep(5.0)
        assert world.network.connections("mallory") == ()
        assert len(alice.links) == 1


@scene
async def test_silent_connections_from_everywhere_do_not_shut_out_callers(world: World) -> None:
    async with world.pool("alice") as alice, world.pool("bob") as bob:
        for number in range(2 * MAX_HANDSHAKES):
            await world.network.host(f"mallory{number}").connect(alice.listening[0], asyncio.Protocol)
        assert await bob.dial([ALICE])


class Babbler(asyncio.Protocol):
    """Says something as soon as it is connected, and listens to nothing."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        transport.write(self.data)


@pytest.mark.parametrize("data", [b"\x00" * 5000, b"GET / HTTP/1.1\r\n\r\n", bytes(range(256)) * 300])
def test_babble_changes_nothing(tmp_path: Path, data: bytes) -> None:
    @scene
    async def story(world: World) -> None:
        async with world.pool("alice") as alice, world.pool("bob") as bob:
            link = await bob.dial([ALICE])
            for _ in range(4):
                await world.network.host("mallory").connect(alice.listening[0], lambda: Babbler(data))
            await asyncio.sleep(3.0)
            assert world.network.connections("mallory") == ()
            assert link.end is None
            assert len(world.recorders["alice"].ups) == 1

    story(tmp_path)


@scene
async def test_a_call_that_is_answered_as_the_pool_closes_leaves_nothing(world: World) -> None:
    async with world.pool("alice") as alice:
        for delay in (0.01, 0.03, 0.05, 0.07, 0.09, 0.11):
            async with world.pool("bob") as bob, asyncio.TaskGroup() as group:
                call = group.create_task(try_to_dial(bob))
                await asyncio.sleep(delay)
                await bob.aclose("enough")
            assert isinstance(call.result(), FailureError)
        await asyncio.sleep(30.0)
        assert world.network.connections() == ()
        assert not alice.links


async def try_to_dial(pool: Pool) -> object:
    try:
        return await pool.dial([ALICE])
    except FailureError as error:
        return error


@scene
async def test_an_observed_address_that_is_none_breaks_the_protocol(world: World) -> None:
    async with world.pool("alice") as alice, world.pool("bob") as bob:
        judge = alice.reception.judge

        def lie(*args: Any, **named: Any) -> Any:
            verdict = judge(*args, **named)
            return replace(verdict, accept=msgspec.structs.replace(verdict.accept, observed="nonsense"))

        alice.reception.judge = lie  # type: ignore[method-assign]
        with pytest.raises(FailureError, match="broke the protocol: 'nonsense' is not an address"):
            await bob.dial([ALICE])
        assert not bob.links
