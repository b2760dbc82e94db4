"""Whose turn it is to send: the payloads of training before those of blocks."""

from itertools import pairwise

import pytest

from swarm.ids import JobId
from swarm.protocol.session_budget import NodeMemory
from swarm.protocol.session_events import Deliver, Down, Post
from swarm.protocol.session_sending import YIELDING_TURNS, Outbox
from swarm.testing.sessions import SessionPair
from swarm.wire.messages.base import Message
from swarm.wire.messages.blocks import BlockReply
from swarm.wire.messages.pipeline import BoundaryTensor, Fence

BLOCK = BlockReply(request=1)
TENSOR = BoundaryTensor(
    fence=Fence(job=JobId("j" * 52), step=0, phase="train", source=0, target=1, sender=1, receiver=1),
    micro_batch=0,
    tensor=1,
    direction="forward",
    header=None,
)
FRAME = 1000


@pytest.fixture
def outbox() -> Outbox:
    return Outbox(dialed=True, share=NodeMemory().link().control)


def post(outbox: Outbox, key: int, message: Message, frames: int) -> None:
    outbox.post(key, message, memoryview(bytes([key]) * frames * FRAME))


def sent(outbox: Outbox) -> list[int]:
    """The keys of the payloads whose frames are sent, in order."""
    keys = []
    while (write := outbox.next_bulk(FRAME)[0]) is not None:
        outbox.check()
        keys.append(write.body[0])
    return keys


def test_a_boundary_tensor_waits_for_no_more_than_the_frame_of_a_block_that_is_under_way(outbox: Outbox):
    post(outbox, 1, BLOCK, 9)
    outbox.next_bulk(FRAME)
    post(outbox, 2, TENSOR, 3)
    assert sent(outbox) == [2] * 3 + [1] * 8


def test_blocks_get_one_turn_in_eight_beside_tensors(outbox: Outbox):
    post(outbox, 1, BLOCK, 4)
    post(outbox, 2, TENSOR, 20)
    post(outbox, 3, TENSOR, 20)
    order = sent(outbox)
    blocks = [place for place, key in enumerate(order) if key == 1]
    assert [later - place for place, later in pairwise(blocks)] == [YIELDING_TURNS] * 3
    assert order.count(2) == order.count(3) == 20
    assert all(one != other for one, other in pairwise(key for key in order if key != 1))


def test_payloads_of_one_kind_take_turns(outbox: Outbox):
    post(outbox, 1, BLOCK, 3)
    post(outbox, 2, BLOCK, 3)
    assert sent(outbox) == [1, 2] * 3
    post(outbox, 3, TENSOR, 3)
    post(outbox, 4, TENSOR, 3)
    assert sent(outbox) == [3, 4] * 3


def test_streams_open_in_the_order_of_their_numbers_whoever_has_the_first_turn():
    pair = SessionPair()
    pair.rise(0.0)
    payload = memoryview(bytes(FRAME))
    for key, message in enumerate((BLOCK, TENSOR, BLOCK, TENSOR), start=1):
        pair.near.feed(Post(key, message, payload), 0.0)
    pair.carry(0.0)
    delivered = [action.message for action in pair.far.actions if isinstance(action, Deliver)]
    assert delivered == [TENSOR, TENSOR, BLOCK, BLOCK]
    assert not [action for action in pair.far.actions if isinstance(action, Down)]


def test_a_payload_that_is_withdrawn_before_its_first_turn_is_never_heard_of(outbox: Outbox):
    post(outbox, 1, TENSOR, 3)
    post(outbox, 2, BLOCK, 3)
    outbox.next_bulk(FRAME)
    outbox.withdraw(2)
    outbox.check()
    assert not outbox.has_control
    assert sent(outbox) == [1, 1]
    assert len(outbox) == 0
