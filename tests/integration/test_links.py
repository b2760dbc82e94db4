"""Links over real TLS on loopback, on both event loops: payloads, refusals and why, strangers, loss."""

import asyncio
import contextlib
import importlib.util
import socket
import ssl
import subprocess
import sys
import textwrap
import tracemalloc
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from blockbuster import blockbuster_ctx
from cryptography.hazmat.primitives.serialization import Encoding

from swarm import clock as system
from swarm.clock import SystemClock
from swarm.compress.codec import Place
from swarm.compress.ladder import plainly, put_together
from swarm.errors import FailureError, MisuseError, RemoteRefusalError
from swarm.identity.authority import Authority
from swarm.identity.membership import Identity
from swarm.net.address import Address
from swarm.net.driver import TURN_BYTES
from swarm.net.link import Link
from swarm.net.network import SystemNetwork
from swarm.net.pool import Pool
from swarm.net.tls import MAX_UNREAD_BYTES, RECEIVE_BYTES
from swarm.protocol.session_memory import MAPPED_BYTES
from swarm.protocol.session_meters import HEARTBEAT_SECONDS
from swarm.protocol.session_receiving import FIRST_BYTES
from swarm.testing.certificates import without_key_identifier
from swarm.testing.pools import Pools, Recorder
from swarm.testing.sessions import widen
from swarm.wire.limits import MAX_DATA_FRAME_BYTES, MIB
from swarm.wire.messages.base import Message
from swarm.wire.messages.blocks import BlockReply, BlockRequest

LOOPS: list[Any] = [pytest.param(asyncio.new_event_loop, id="asyncio")]
if importlib.util.find_spec("uvloop") is not None:
    import uvloop

    LOOPS.append(pytest.param(uvloop.new_event_loop, id="uvloop"))

LoopFactory = Callable[[], asyncio.AbstractEventLoop]
DIGEST = "a" * 52


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Iterator[Callable[[Awaitable[None]], None]]:
    """Runs a coroutine on each event loop, where any call that blocks it is an error."""
    factory: LoopFactory = request.param

    async def bounded(story: Awaitable[None]) -> None:
        async with asyncio.timeout(60.0):
            await story

    def run_one(story: Awaitable[None]) -> None:
        with blockbuster_ctx(), asyncio.Runner(loop_factory=factory) as runner:
            runner.run(bounded(story))

    return run_one


class World:
    """A swarm on loopback. Its pools are made before the loop runs, since they read their certificates."""

    def __init__(self, folder: Path, *, name: str = "test") -> None:
        self.pools = Pools(folder, name=name)
        self.recorders: dict[str, Recorder] = {}

    def pool(self, name: str, **options: Any) -> Pool:
        recorder = self.recorders[name] = Recorder()
        fields: dict[str, Any] = {"listen": ("127.0.0.1", 0), "handlers": recorder}
        return self.pools.pool(SystemNetwork(), **(fields | options))


Run = Callable[[Awaitable[None]], None]


def address(pool: Pool) -> str:
    return str(pool.listening[0])


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_payloads_of_all_sizes_cross_whole(world: World, run: Run) -> None:
    alice, bob = world.pool("alice"), world.pool("bob")
    payloads = [bytes([n % 251]) * size for n, size in enumerate((1, 100, 65_536, 1_000_001, 9_000_000))]

    async def story() -> None:
        async with alice, bob:
            link = await bob.dial([address(alice)], expect=alice.identity.peer)
            sendings = [link.post(BlockReply(request=n), payload) for n, payload in enumerate(payloads)]
            link.post(BlockRequest(request=99, digest=DIGEST))
            for sending in sendings:
                await sending.wait()
            heard = world.recorders["alice"]
            await heard.until(lambda r: len(r.messages) == len(payloads) + 1)
            arrived = {message.request: payload for message, payload in heard.messages}  # type: ignore[attr-defined]
            assert arrived == {**dict(enumerate(payloads)), 99: b""}
            back = alice.links[bob.identity.peer]
            assert back.statistics().payload_received == sum(map(len, payloads))
            assert back.statistics().rtt > 0

    run(story())


class Keeper(Recorder):
    """Keeps payloads where they were received."""

    def __init__(self) -> None:
        super().__init__()
        self.payloads: list[memoryview] = []

    def on_message(self, link: Link, message: Message, payload: memoryview) -> None:
        self.payloads.append(payload)
        super().on_message(link, message, memoryview(b""))


@pytest.mark.parametrize("elements", [MAPPED_BYTES // 4 - 1000, 4 * MIB])
def test_tensors_cross_without_a_copy_of_ours(world: World, run: Run, elements: int) -> None:
    """The encoder's buffer is the tensor, the decoder's the payload where it was received."""
    keeper = Keeper()
    alice, bob = world.pool("alice", handlers=keeper), world.pool("bob")
    tensor = torch.arange(elements, dtype=torch.float32)
    size = tensor.numel() * tensor.element_size()
    received = size if size < MAPPED_BYTES else 0  # a mapping is no memory that tracemalloc knows
    passing = FIRST_BYTES + 10 * MAX_DATA_FRAME_BYTES

    async def story() -> None:
        async with alice, bob:
            link = await bob.dial([address(alice)])
            tracemalloc.start()
            try:
                encoded = plainly(tensor)
                sending = link.post(BlockReply(request=1), encoded.payload)
                await sending.wait()
                await keeper.until(lambda _: bool(keeper.payloads))
                arrived = replace(encoded, payload=keeper.payloads[0])
                decoded = put_together(arrived, Place(device=torch.device("cpu"))).tensor
                _, peak = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
            assert peak < received + passing < received + size
            assert torch.equal(decoded, tensor)

    run(story())


def test_simultaneous_calls_give_one_link(world: World, run: Run) -> None:
    alice, bob = world.pool("alice"), world.pool("bob")

    async def story() -> None:
        async with alice, bob:
            alices, bobs = await asyncio.gather(alice.dial([address(bob)]), bob.dial([address(alice)]))
            assert alices.dialed != bobs.dialed
            alices.post(BlockRequest(request=1, digest=DIGEST))
            await world.recorders["bob"].until(lambda r: bool(r.messages))
            assert len(world.recorders["alice"].ups) == len(world.recorders["bob"].ups) == 1

    run(story())


def test_both_families_share_one_port(world: World, run: Run) -> None:
    alice, bob = world.pool("alice", listen=("", 0)), world.pool("bob", listen=None)

    async def story() -> None:
        async with alice, bob:
            assert len({where.port for where in alice.listening}) == 1
            assert bob.listening == ()
            for where in alice.listening:
                host = "127.0.0.1" if ":" not in where.host else "[::1]"
                link = await bob.dial([f"{host}:{where.port}"])
                await link.aclose("next")
                await world.recorders["alice"].until(lambda r: len(r.downs) == len(r.ups))
            assert await bob.dial([f"localhost:{alice.listening[0].port}"])

    run(story())


# Refusals.


def refused(world: World, run: Run, caller: Pool, *, called: Pool | None = None) -> tuple[str, str]:
    """Code and sentence with which ``called`` (a member of ``world``) refuses ``caller``."""
    alice = called or world.pool("alice")
    found: list[tuple[str, str]] = []

    async def story() -> None:
        async with alice, caller:
            with pytest.raises(RemoteRefusalError) as caught:
                await caller.dial([address(alice)])
            assert str(caught.value).startswith(f"{address(alice)} (")
            found.append((caught.value.code, str(caught.value).split(" s) ", 1)[1]))
            assert not alice.links
            assert not caller.links

    run(story())
    return found[0]


def test_a_member_of_another_swarm(world: World, tmp_path: Path, run: Run) -> None:
    mallory = World(tmp_path, name="other").pool("mallory")
    code, sentence = refused(world, run, mallory)
    assert code == "wrong-swarm"
    assert sentence == "belongs to another swarm than this peer's invite"


def test_an_expired_invite(world: World, run: Run) -> None:
    now = system.wall()
    late = world.pools.identity(world.pools.invite(join_by=now + 3600))

    class Later(SystemClock):
        wall = staticmethod(lambda: now + 2 * 3600)

    alice = world.pool("alice")
    world.pools.clock = Later()
    alice._clock = world.pools.clock
    code, sentence = refused(world, run, world.pool("bob", identity=late), called=alice)
    assert code == "invite-expired"
    assert sentence.endswith("UTC: ask the organiser for a new one")


def test_a_clock_that_is_a_day_off(world: World, run: Run) -> None:
    alice, identity = world.pool("alice"), world.pools.identity()

    class Ahead(SystemClock):
        wall = staticmethod(lambda: system.wall() + 26 * 3600)

    world.pools.clock = Ahead()
    bob = world.pool("bob", identity=identity)
    code, sentence = refused(world, run, bob, called=alice)
    assert code == "clock"
    assert sentence.startswith("refused this peer: your clock is 26 h ahead of mine, which says ")


def test_a_certificate_made_by_a_clock_that_is_days_ahead(world: World, run: Run) -> None:
    alice = world.pool("alice")

    class Ahead(SystemClock):
        wall = staticmethod(lambda: system.wall() + 3 * 86_400)

    world.pools.clock = Ahead()
    code, sentence = refused(world, run, world.pool("bob", identity=world.pools.identity()), called=alice)
    assert code == "clock"
    assert sentence.startswith("refused this peer: your clock is 3 days ahead of mine")


def test_a_certificate_made_by_a_clock_that_is_years_ahead(world: World, run: Run) -> None:
    alice = world.pool("alice")

    class Ahead(SystemClock):
        wall = staticmethod(lambda: system.wall() + 3 * 365 * 86_400)

    world.pools.clock = Ahead()
    code, sentence = refused(world, run, world.pool("bob", identity=world.pools.identity()), called=alice)
    assert code == "bad-certificate"
    assert sentence.startswith("refused this peer: the certificate is bad: check the clocks of both machines")


def test_a_certificate_without_authority_key_identifier(world: World, tmp_path: Path, run: Run) -> None:
    identity = world.pools.identity()
    identity.save(tmp_path)
    files = identity.tls_files(tmp_path)
    delegate = files.chain.read_bytes().split(b"-----END CERTIFICATE-----\n", 1)[1]
    files.chain.write_bytes(without_key_identifier(identity).public_bytes(Encoding.PEM) + delegate)
    code, sentence = refused(world, run, world.pool("bob", identity=identity, tls=files))
    assert code == "bad-certificate"
    assert sentence == (
        "refused this peer: the peer's certificate lacks the extension authority key identifier: "
        "join again with --invite and another --name"
    )
    # A program of ours calls nobody with it: it says what is wrong with its own certificate.
    leaf = without_key_identifier(identity).public_bytes(Encoding.DER)
    with pytest.raises(MisuseError, match="lacks the extension authority key identifier"):
        Identity(key=identity.key, invite=identity.invite, leaf=leaf)


def test_a_version_that_is_too_new(world: World, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    bob = world.pool("bob")
    introduce = bob.reception.introduce

    def newer(*args: Any, **named: Any) -> Any:
        import msgspec  # noqa: PLC0415 - only here

        return msgspec.structs.replace(introduce(*args, **named), oldest=7, newest=9)

    monkeypatch.setattr(bob.reception, "introduce", newer)
    code, sentence = refused(world, run, bob)
    assert code == "version"
    assert "which is too old for it: whoever runs me has to pip install -U fusion-swarm" in sentence


def call_without_certificate(where: Address, newest: ssl.TLSVersion) -> None:
    """As ``openssl s_client`` calls: it takes any certificate, and has none. Blocks."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.maximum_version = newest
    with (
        socket.create_connection((where.host, where.port), timeout=20) as plain,
        context.wrap_socket(plain) as sock,
    ):
        sock.recv(1)


@pytest.mark.parametrize(
    ("newest", "alert"),
    [(ssl.TLSVersion.TLSv1_3, "CERTIFICATE_REQUIRED"), (ssl.TLSVersion.TLSv1_2, "PROTOCOL_VERSION")],
)
def test_callers_without_a_certificate_or_with_old_tls(
    world: World, run: Run, newest: ssl.TLSVersion, alert: str
) -> None:
    alice = world.pool("alice")

    async def story() -> None:
        loop = asyncio.get_running_loop()
        async with alice:
            with pytest.raises(ssl.SSLError, match=alert):
                await loop.run_in_executor(None, call_without_certificate, alice.listening[0], newest)
            assert not alice.links

    run(story())


def test_ports_of_other_programs(world: World, run: Run) -> None:
    """A web server, an SSH server, one that hangs up, and none at all."""
    bob = world.pool("bob")
    greetings = {"web": b"HTTP/1.1 400 Bad Request\r\n\r\n", "ssh": b"SSH-2.0-OpenSSH_9.7\r\n", "none": b""}

    async def story() -> None:
        async with bob, contextlib.AsyncExitStack() as servers:
            answers = {}
            for name, greeting in greetings.items():

                async def serve(
                    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, greeting: bytes = greeting
                ) -> None:
                    await reader.read(1)
                    writer.write(greeting)
                    writer.close()

                server = await asyncio.start_server(serve, "127.0.0.1", 0)
                await servers.enter_async_context(server)
                port = server.sockets[0].getsockname()[1]
                with pytest.raises(FailureError) as caught:
                    await bob.dial([f"127.0.0.1:{port}"])
                answers[name] = str(caught.value).removeprefix(f"127.0.0.1:{port} (0.0 s) ")
            assert answers == {
                "web": "does not speak TLS: is that the port of another program?",
                "ssh": "does not speak TLS: is that the port of another program?",
                "none": "closed the connection",
            }
            with pytest.raises(
                FailureError, match=r"127\.0\.0\.1:1 \(0\.0 s\) does not listen \(connection refused\)"
            ):
                await bob.dial(["127.0.0.1:1"])
            with pytest.raises(FailureError, match=r"does not exist: there is no host nowhere\.invalid"):
                await bob.dial(["nowhere.invalid:7423"])

    run(story())


def test_a_taken_port_is_said_with_the_remedy(world: World, run: Run) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        narrow, wide = world.pool("alice", listen=("127.0.0.1", port)), world.pool("bob", listen=("", port))
        nowhere = world.pool("carol", listen=("192.0.2.1", 0))

        async def story() -> None:
            remedy = "give --listen HOST:PORT with"
            with pytest.raises(FailureError) as caught:
                await narrow.__aenter__()
            assert str(caught.value) == f"127.0.0.1:{port} is taken by another program: {remedy} another port"
            with pytest.raises(FailureError) as caught:
                await wide.__aenter__()
            assert str(caught.value) == f"port {port} is taken by another program: {remedy} another port"
            with pytest.raises(FailureError) as caught:
                await nowhere.__aenter__()
            assert str(caught.value) == f"192.0.2.1 is no address of this machine: {remedy} one that is"

        run(story())


# Strangers.


@pytest.mark.parametrize(
    "babble",
    [bytes(range(256)) * 40, b"GET /status HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01\xff\xff" + bytes(99)],
)
def test_babble_on_the_port_changes_nothing(world: World, run: Run, babble: bytes) -> None:
    alice, bob = world.pool("alice"), world.pool("bob")

    async def story() -> None:
        async with alice, bob:
            link = await bob.dial([address(alice)])
            where = alice.listening[0]
            for _ in range(20):
                reader, writer = await asyncio.open_connection(where.host, where.port)
                writer.write(babble)
                writer.write_eof()
                with contextlib.suppress(ConnectionError):
                    while await reader.read(1000):
                        pass
                writer.transport.abort()
            link.post(BlockRequest(request=1, digest=DIGEST))
            await world.recorders["alice"].until(lambda r: bool(r.messages))
            assert len(world.recorders["alice"].ups) == 1
            assert world.recorders["alice"].downs == []
            assert len(alice._handshakes) == 0

    run(story())


def test_half_open_connections_leave_room_for_members(world: World, run: Run) -> None:
    alice, bob = world.pool("alice"), world.pool("bob")

    async def story() -> None:
        async with alice, bob:
            where = alice.listening[0]
            silent = [await asyncio.open_connection(where.host, where.port) for _ in range(40)]
            try:
                assert await bob.dial([address(alice)])
                await world.recorders["alice"].until(lambda r: bool(r.ups))
                assert len(alice._handshakes) == len(silent)
            finally:
                for _, writer in silent:
                    writer.transport.abort()
        assert len(alice._handshakes) == 0

    run(story())


# Loss and slowness.


CHILD = """
import asyncio, pathlib, sys
from swarm.identity.membership import Identity
from swarm.clock import SystemClock
from swarm.net.network import SystemNetwork
from swarm.net.pool import Pool
from swarm.net.config import PoolConfig
from swarm.testing.hellos import NO_CAPABILITIES
from swarm.testing.pools import Recorder
from swarm.wire.messages.blocks import BlockReply

async def main(folder, address):
    identity = Identity.load(folder)
    files = identity.tls_files(folder)
    config = PoolConfig(role="peer", tls=files, capabilities=NO_CAPABILITIES, program="child", listen=None)
    pool = Pool(
        config, identity=identity, network=SystemNetwork(), clock=SystemClock(), handlers=Recorder()
    )
    async with pool:
        link = await pool.dial([address])
        await link.post(BlockReply(request=1), b"whole").wait()
        while True:
            await link.post(BlockReply(request=2), bytes(16 * 2**20)).wait()

asyncio.run(main(pathlib.Path(sys.argv[1]), sys.argv[2]))
"""


def test_a_killed_peer_is_noticed_at_once_in_the_middle_of_a_payload(
    world: World, tmp_path: Path, run: Run
) -> None:
    alice = world.pool("alice")
    identity = world.pools.identity()
    identity.save(tmp_path / "child")

    async def story() -> None:
        loop = asyncio.get_running_loop()
        async with alice:
            child = await loop.run_in_executor(
                None,
                lambda: subprocess.Popen(
                    [sys.executable, "-c", textwrap.dedent(CHILD), str(tmp_path / "child"), address(alice)]
                ),
            )
            try:
                heard = world.recorders["alice"]
                await heard.until(lambda r: bool(r.messages))
                link = alice.links[identity.peer]
                await heard.until(lambda _: link.statistics().receiving > 0)
                child.kill()
                async with asyncio.timeout(2 * HEARTBEAT_SECONDS):  # silence is noticed after three
                    await heard.until(lambda r: bool(r.downs))
                peer, reason = heard.downs[0]
                assert peer == identity.peer
                lost = {"was lost (connection reset by peer)", "was lost (broken pipe)"}
                assert reason in {"closed the connection", *lost}
                assert all(len(payload) in {5, 16 * MIB} for _, payload in heard.messages)
                assert not alice.links
            finally:
                child.kill()
                await loop.run_in_executor(None, child.wait)

    run(story())


async def sending_stops(sender: Any) -> None:
    """Return once ``sender`` takes no more."""
    while sender.writable:  # noqa: ASYNC110 - there is no event for what does not happen
        await asyncio.sleep(0)


def test_a_slow_reader_costs_bounded_memory_at_both_ends(world: World, run: Run) -> None:
    alice, bob = world.pool("alice"), world.pool("bob")

    async def story() -> None:
        async with alice, bob:
            link = await bob.dial([address(alice)])
            await world.recorders["alice"].until(lambda r: bool(r.ups))
            receiver = world.recorders["alice"].ups[0]._channel
            transport = receiver._transport
            transport.pause_reading()
            widen(link._session)
            payload = bytes(8 * MIB)
            sendings = [link.post(BlockReply(request=n), payload) for n in range(8)]
            sender = link._channel
            await sending_stops(sender)
            assert sender.unsent < TURN_BYTES
            assert sender.unsent < 3 * MAX_DATA_FRAME_BYTES
            assert sum(sending.done for sending in sendings) < len(sendings)
            assert receiver._incoming.pending < MAX_UNREAD_BYTES + RECEIVE_BYTES
            transport.resume_reading()
            await world.recorders["alice"].until(lambda r: len(r.messages) == len(sendings))

    run(story())


def test_authorities_of_one_name_are_two_swarms(world: World, tmp_path: Path, run: Run) -> None:
    imitation = World(tmp_path / "imitation")
    imitation.pools.authority = Authority.create("test", public=False, now=system.wall())
    code, sentence = refused(world, run, imitation.pool("mallory"))
    assert code in {"wrong-swarm", "bad-certificate"}
    assert "swarm" in sentence or "certificate" in sentence
