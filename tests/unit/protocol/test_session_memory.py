"""Memory for payloads: whole, writable, taken page by page where it is much, and used again."""

import threading

import psutil
import pytest

from swarm.protocol.session_budget import NodeMemory
from swarm.protocol.session_events import Deliver, Lost, Post
from swarm.protocol.session_memory import MAPPED_BYTES, SPARE_SECONDS, PayloadMemory
from swarm.testing.sessions import SessionPair
from swarm.wire.limits import GIB, MIB
from swarm.wire.messages.blocks import BlockReply

LARGE = MAPPED_BYTES


@pytest.mark.parametrize("size", [1, MAPPED_BYTES - 1, MAPPED_BYTES, MAPPED_BYTES + 1])
def test_memory_is_writable_and_of_its_size(size: int) -> None:
    memory = PayloadMemory(spare=0).allocate(size)
    memory[0] = 1
    memory[size - 1] = 255
    assert (memory.nbytes, memory.format, memory.readonly) == (size, "B", False)
    assert bytes(memory[: min(size, 3)])[-1] in {0, 1, 255}


def test_announcing_much_costs_little_until_it_comes() -> None:
    process = psutil.Process()
    before = process.memory_info().rss
    memory = PayloadMemory(spare=0).allocate(GIB)
    memory[5] = 1
    assert process.memory_info().rss - before < 16 * MIB


def test_memory_is_used_again_only_when_the_last_view_is_gone() -> None:
    lender = PayloadMemory(spare=4 * LARGE)
    first = lender.allocate(LARGE)
    first[0] = 7
    part = first[10:20]
    first.release()
    second = lender.allocate(LARGE)
    assert second[0] == 0, "a part of the first is looked at still"
    assert lender.spare == 0
    del first, part
    assert lender.spare == LARGE
    assert lender.allocate(LARGE)[0] == 7


def test_memory_of_another_size_is_not_used() -> None:
    lender = PayloadMemory(spare=4 * LARGE)
    lender.allocate(LARGE)[0] = 7
    assert lender.allocate(LARGE + 1)[0] == 0


def test_no_more_is_kept_than_may_be_and_the_oldest_goes_first() -> None:
    lender = PayloadMemory(spare=2 * LARGE)
    lent = [lender.allocate(LARGE) for _ in range(4)]
    for number in range(4):
        lent[number][0] = number
    lent.append(lender.allocate(3 * LARGE))
    while lent:
        del lent[0]
    assert lender.spare == 2 * LARGE
    newest = [lender.allocate(LARGE), lender.allocate(LARGE)]
    assert {memory[0] for memory in newest} == {2, 3}


def test_what_nobody_uses_any_more_is_given_up() -> None:
    lender = PayloadMemory(spare=4 * LARGE)
    now = 1000.0
    lender.trim(now)
    lender.allocate(LARGE)
    lender.allocate(LARGE)
    lender.trim(now + SPARE_SECONDS)
    assert lender.spare == LARGE, "it was used again since"
    lender.trim(now + 1.5 * SPARE_SECONDS)
    assert lender.spare == LARGE
    lender.trim(now + 2 * SPARE_SECONDS)
    assert lender.spare == 0


def test_a_view_may_go_on_another_thread() -> None:
    lender = PayloadMemory(spare=LARGE)
    held = [lender.allocate(LARGE)]
    thread = threading.Thread(target=held.clear)
    thread.start()
    thread.join()
    assert lender.spare == LARGE


def test_payloads_of_one_size_share_memory_and_a_link_that_ends_gives_it_up() -> None:
    node = NodeMemory()
    pair = SessionPair(memory=node)
    pair.rise(0.0)
    for key in (1, 2, 3):
        whole = bytes([key]) * LARGE
        pair.near.feed(Post(key, BlockReply(request=key), memoryview(whole)), 0.0)
        pair.carry(0.0)
        assert [a.payload == whole for a in pair.far.actions if isinstance(a, Deliver)] == [True]
        pair.far.actions.clear()
        assert node.link().mappings.spare == LARGE
    pair.far.feed(Lost("was lost"), 0.0)
    assert node.link().mappings.spare == 0
