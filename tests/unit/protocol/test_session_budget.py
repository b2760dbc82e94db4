"""What peers can make a node hold together: fair shares, streams that wait for memory, unread messages."""

import pytest

from swarm.protocol import session_receiving
from swarm.protocol.session_budget import CONTROL_BUDGET_BYTES, Budget, NodeMemory
from swarm.protocol.session_events import Deliver, Down, Post, Tick, Unwanted
from swarm.protocol.session_memory import MAPPED_BYTES, PayloadMemory
from swarm.testing.sessions import SessionEnd, SessionPair
from swarm.wire import frames
from swarm.wire.frames import Kind
from swarm.wire.limits import INITIAL_CREDIT_BYTES, MIB
from swarm.wire.messages.blocks import BlockMissing, BlockReply
from swarm.wire.messages.registry import encode_message

EMPTY = memoryview(b"")


def risen(memory: NodeMemory) -> SessionPair:
    pair = SessionPair(memory=memory)
    pair.rise(0.0)
    return pair


def payload(key: int, size: int) -> Post:
    return Post(key, BlockReply(request=key), memoryview(bytes([key]) * size))


def delivered(end: SessionEnd) -> list[int]:
    return [action.payload.nbytes for action in end.actions if isinstance(action, Deliver)]


def sentence_of(end: SessionEnd) -> str:
    (down,) = [action.end for action in end.actions if isinstance(action, Down)]
    return str(down)


@pytest.mark.parametrize("greedy", [1, 2, 3, 9])
def test_greedy_links_leave_as_much_as_each_of_them_has(greedy: int) -> None:
    budget = Budget(1200)
    shares = [budget.share() for _ in range(greedy)]
    for _ in range(1200):
        for share in shares:
            share.take(1)
    assert {share.held for share in shares} == {1200 // (greedy + 1)}
    newcomer = budget.share()
    assert newcomer.take(1200 // (greedy + 1) // 2)


def test_what_is_given_back_can_be_taken_by_others() -> None:
    budget = Budget(100)
    first, second = budget.share(), budget.share()
    assert first.take(50)
    assert not first.take(1)
    assert second.take(25)
    assert not second.take(1)
    first.give_back(50)
    assert second.take(25)
    assert (budget.held, second.held) == (50, 50)


def test_a_payload_that_never_has_room_is_refused_with_the_size_that_has() -> None:
    pair = risen(NodeMemory(payloads=16 * MIB))
    pair.near.feed(payload(1, 6 * MIB + 1), 0.0)
    pair.carry(0.0)
    assert pair.near.actions == [Unwanted(1, f"this peer takes payloads of {6 * MIB} bytes at most")]
    assert pair.far.actions == []


def test_a_large_payload_waits_for_memory_that_another_link_has() -> None:
    memory = NodeMemory(payloads=32 * MIB)
    slow, quick = risen(memory), risen(memory)
    slow.near.feed(payload(1, 10 * MIB), 0.0)
    while slow.far.session.statistics().payload_received < 3 * MIB:
        slow.near.write(0.0)
        slow.far.receive(slow.near.wire, 0.0)
        slow.near.wire.clear()
        slow.far.write_all(0.0)
        slow.near.receive(slow.far.wire, 0.0)
        slow.far.wire.clear()
    quick.near.feed(payload(2, 9 * MIB), 0.0)
    quick.near.feed(payload(3, 2 * MIB), 0.0)
    quick.carry(0.0)
    assert quick.far.session.statistics().payload_received == INITIAL_CREDIT_BYTES + 2 * MIB
    assert delivered(quick.far) == [2 * MIB]
    assert quick.far.session.deadline <= 0.1
    quick.far.feed(Tick(), 0.1)
    quick.carry(0.1)
    assert delivered(quick.far) == [2 * MIB]
    slow.carry(0.1)
    assert delivered(slow.far) == [10 * MIB]
    quick.far.feed(Tick(), 0.2)
    quick.carry(0.2)
    assert delivered(quick.far) == [2 * MIB, 9 * MIB]
    assert quick.far.session.deadline > 1.0


def test_a_link_that_ends_gives_its_memory_back() -> None:
    memory = NodeMemory(payloads=24 * MIB)
    pair = risen(memory)
    pair.near.feed(payload(1, 5 * MIB), 0.0)
    pair.far.receive(pair.near.write(0.0), 0.0)
    pair.near.feed(payload(2, 5 * MIB), 0.0)
    pair.far.receive(pair.near.write(0.0), 0.0)
    pair.far.receive(frames.data_header(5, 1), 0.0)
    assert sentence_of(pair.far).startswith("broke the protocol")
    pair.far.write_all(0.0)
    share = memory.link()
    assert share.begun.take(3 * MIB)
    assert share.granted.take(9 * MIB)
    assert share.control.take(CONTROL_BUDGET_BYTES // 2)


def test_while_granted_payloads_take_their_part_others_can_begin() -> None:
    pair = risen(NodeMemory(payloads=120 * MIB))
    body = encode_message(BlockReply(request=1))
    for stream in range(1, 33, 2):
        opened = frames.open_frame(stream, BlockReply.NUMBER, body, 10 * MIB)
        pair.far.receive(opened + frames.data_header(stream, 1) + b"x", 0.0)
    assert len(pair.far.actions) == 16
    pair.far.write_all(0.0)
    granted = [frames.credit_frame(stream, 9 * MIB) for stream in (1, 3, 5, 7)]
    assert pair.far.wire == b"".join(granted), "half of what is granted, and no refusal"


def test_streams_that_only_begin_are_refused_where_others_would_have_no_room() -> None:
    memory = NodeMemory(payloads=100 * MIB)
    pair = risen(memory)
    body = encode_message(BlockReply(request=1))
    for stream in range(1, 1200, 2):
        opened = frames.open_frame(stream, BlockReply.NUMBER, body, MAPPED_BYTES)
        pair.far.receive(opened + frames.data_header(stream, 1) + b"x", 0.0)
    assert b"this peer has no memory left for more payloads" in pair.far.write(0.0)
    assert pair.far.session.state == "up"
    other = memory.link()
    assert other.begun.take(6 * MIB)
    assert other.granted.take(19 * MIB)


def test_a_byte_in_each_of_many_streams_costs_little(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []
    monkeypatch.setattr(
        PayloadMemory, "allocate", lambda _, size: taken.append(size) or memoryview(bytearray(size))
    )
    pair = risen(NodeMemory())
    body = encode_message(BlockReply(request=1))
    for stream in range(1, 101, 2):
        opened = frames.open_frame(stream, BlockReply.NUMBER, body, 16 * MIB)
        pair.far.receive(opened + frames.data_header(stream, 1) + b"x", 0.0)
    assert taken == [session_receiving.FIRST_BYTES] * 50


# What the other side does not read.


def test_messages_that_nobody_reads_end_the_link_once_they_are_too_many() -> None:
    pair = risen(NodeMemory(control=10_000))
    for key in range(1, 400):
        pair.far.feed(Post(key, BlockMissing(request=key), EMPTY), 0.0)
    assert pair.far.session.state == "up"
    assert pair.far.session.deadline == 0.0
    pair.far.feed(Tick(), 0.0)
    assert sentence_of(pair.far) == "was hung up on: too much waits to be read"
    last = pair.far.write(0.0)
    assert frames.decode_header(last[:12]).kind is Kind.CLOSE
    assert len(last) < 100


def test_refusals_that_nobody_reads_end_the_link_too() -> None:
    pair = risen(NodeMemory(payloads=8 * MIB, control=10_000))
    body = encode_message(BlockReply(request=1))
    for stream in range(1, 401, 2):
        pair.far.receive(frames.open_frame(stream, BlockReply.NUMBER, body, 5 * MIB), 0.0)
    pair.far.feed(Tick(), 0.0)
    assert sentence_of(pair.far) == "was hung up on: too much waits to be read"


def test_a_peer_that_reads_may_be_sent_any_amount() -> None:
    pair = risen(NodeMemory(control=10_000))
    for key in range(1, 2000):
        pair.far.feed(Post(key, BlockMissing(request=key), EMPTY), 0.0)
        if not key % 50:
            pair.carry(0.0)
    pair.carry(0.0)
    assert pair.far.session.state == "up"
    assert len([action for action in pair.near.actions if isinstance(action, Deliver)]) == 1999
