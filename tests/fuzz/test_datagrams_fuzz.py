"""Whatever arrives at the DHT's port: noise, damaged datagrams, and a member's well-sealed nonsense."""

import asyncio
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from swarm.dht.addresses import Address
from swarm.dht.answering import Answering
from swarm.dht.limits import MAX_DATAGRAM_BYTES
from swarm.dht.messages import Reply, Request, decode_body, encode_body
from swarm.dht.proof import node_id
from swarm.dht.protocol import Protocol
from swarm.dht.reachability import Reachability
from swarm.dht.seal import MAX_BODY_BYTES, Opened, Sealer
from swarm.dht.storage import RecordStorage
from swarm.dht.table import Table
from swarm.errors import RemoteProtocolError
from swarm.identity.keys import PrivateKey
from swarm.ids import swarm_id
from swarm.testing.clock import ManualClock
from swarm.testing.proving import proven
from swarm.wire.records.peer import decode_record, sign_record

SWARM = swarm_id(bytes(32))
EPOCH_KEY = bytes(range(32))
OWN, MEMBER = PrivateKey.from_raw(bytes([1]) * 32), PrivateKey.from_raw(bytes([2]) * 32)
THERE = Address.of("10.0.0.2", 7423)

ids = st.binary(min_size=20, max_size=20)
scalars = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.binary(max_size=40)
values = st.recursive(
    scalars | st.text(max_size=20) | ids, lambda inner: st.lists(inner, max_size=6), max_leaves=12
)


class Target:
    """A node under attack, and a member who has proved its key to it."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.table = Table(node_id(OWN.public), clock=self.clock)
        self.storage = RecordStorage(node_id(OWN.public), swarm=SWARM)
        reachability = Reachability("always", clock=self.clock)
        answering = Answering(
            table=self.table, storage=self.storage, clock=self.clock, reachability=reachability
        )
        self.protocol = Protocol(
            OWN, clock=self.clock, table=self.table, reachability=reachability, answer=answering.answer
        )
        self.protocol.sealer.set_epoch(1, EPOCH_KEY)
        self.protocol.endpoint = self
        self.sent: list[bytes] = []
        self.member = Sealer(node_id(MEMBER.public), clock=self.clock)
        self.member.set_epoch(1, EPOCH_KEY)

    port = 7423
    is_sound = True
    families = frozenset({"IPv4"})

    def close(self) -> None:
        """Nothing is open."""

    def send(self, data: bytes, address: Address) -> bool:
        """The endpoint of the node: keeps what it sends."""
        assert address == THERE
        self.sent.append(data)
        return True

    def deliver(self, body: bytes) -> bytes:
        sealed = self.member.seal(body, self.member.best(None))
        self.protocol.on_datagram(sealed, THERE)
        return sealed

    def prove(self) -> None:
        ask = Request(message=bytes(16), storing=True, prove=True, question=_ping(), cookie=b"", proof=None)
        self.deliver(encode_body(ask))
        own = node_id(OWN.public)
        again = proven(ask, self.sent[-1], key=MEMBER, sealer=self.member, node=own)
        self.deliver(encode_body(again))
        opened = self.member.open(self.sent[-1])
        assert isinstance(opened, Opened)
        assert isinstance(decode_body(opened.body), Reply)

    def check(self) -> None:
        self.table.check()
        self.storage.check()
        assert all(len(data) <= MAX_DATAGRAM_BYTES for data in self.sent)


def _ping() -> Any:
    return decode_body(msgspec.msgpack.encode([1, bytes(16), True, True, b"", None, [1]])).question


@given(st.binary(max_size=1400))
def test_noise_is_dropped_without_an_answer(data: bytes) -> None:
    target = Target()
    target.protocol.on_datagram(data, THERE)
    assert target.sent == []


@given(st.data())
def test_a_damaged_datagram_is_dropped_without_an_answer(data: st.DataObject) -> None:
    target = Target()
    body = msgspec.msgpack.encode([1, bytes(16), True, True, b"", None, [1], bytes(160)])
    sealed = bytearray(target.member.seal(body, target.member.best(None)))
    position = data.draw(st.integers(0, len(sealed) - 1))
    sealed[position] ^= data.draw(st.integers(1, 255))
    target.protocol.on_datagram(bytes(sealed), THERE)
    assert target.sent == []


@given(st.binary(max_size=MAX_BODY_BYTES))
def test_a_members_noise_changes_nothing_and_gets_nothing(body: bytes) -> None:
    target = Target()
    target.prove()
    answers = len(target.sent)
    target.deliver(body)
    target.check()
    assert len(target.sent) == answers


@given(st.lists(values, max_size=9), st.integers(0, 9))
@settings(max_examples=200)
def test_a_members_nonsense_of_any_shape_breaks_nothing(fields: list[Any], tag: int) -> None:
    target = Target()
    target.prove()
    body = msgspec.msgpack.encode([tag, *fields])
    target.deliver(body[:MAX_BODY_BYTES])
    target.check()
    assert len(target.storage) == 0


questions = st.one_of(
    st.just([1]),
    st.tuples(st.just(2), ids, st.booleans(), st.booleans()),
    st.tuples(st.just(3), ids, st.binary(max_size=720), st.binary(max_size=28), st.binary(max_size=20)),
    st.tuples(st.just(4), ids, st.lists(st.binary(max_size=300), min_size=1, max_size=3)),
)


@given(questions, st.booleans(), st.booleans(), st.booleans())
@settings(max_examples=200)
def test_every_well_formed_question_of_a_proven_member_is_answered_within_one_datagram(
    question: Any, storing: bool, prove: bool, proven: bool
) -> None:
    target = Target()
    if proven:
        target.prove()
    answers = len(target.sent)
    sealed = target.deliver(
        msgspec.msgpack.encode([1, bytes(16), storing, prove, b"", None, question, bytes(160)])
    )
    target.check()
    assert len(target.sent) == answers + 1
    assert proven or len(target.sent[-1]) <= len(sealed)


@given(st.lists(st.binary(max_size=400), max_size=8), st.lists(ids, max_size=4))
def test_answers_that_nobody_asked_for_change_nothing(records: list[bytes], nodes: list[bytes]) -> None:
    target = Target()
    for answer in ([5], [6, [[node, bytes(6)] for node in nodes]], [7, records, b""], [8, [1, 2]]):
        body = msgspec.msgpack.encode([2, bytes(16), True, None, answer])
        if len(body) <= MAX_BODY_BYTES:
            target.deliver(body)
    target.deliver(msgspec.msgpack.encode([3, bytes(16), True, bytes(16), [bytes(32), bytes(64)]]))
    target.check()
    assert target.sent == []
    assert target.table.contacts() == []


GOOD = sign_record(
    MEMBER,
    swarm=SWARM,
    sequence=1_750_000_000_000,
    expires=1_750_001_800.0,
    role="peer",
    addresses=("10.0.0.1:7423",),
)


@given(st.lists(st.tuples(st.integers(0, len(GOOD) - 1), st.integers(0, 255)), min_size=1, max_size=6))
def test_a_damaged_record_raises_the_documented_error_or_is_the_same(
    changes: list[tuple[int, int]],
) -> None:
    data = bytearray(GOOD)
    for position, value in changes:
        data[position] = value
    try:
        decode_record(bytes(data))
    except RemoteProtocolError:
        return
    assert bytes(data) == GOOD


def test_a_flood_of_noise_starts_no_task_and_keeps_nothing() -> None:
    async def main() -> None:
        target = Target()
        target.prove()
        answers = len(target.sent)
        for number in range(2000):
            target.protocol.on_datagram(number.to_bytes(4, "big") * 50, THERE)
        assert len(asyncio.all_tasks()) == 1
        assert len(target.sent) == answers
        assert len(target.protocol.contacts) == 1

    asyncio.run(main())
