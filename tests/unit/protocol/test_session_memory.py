"""Memory for payloads: whole, writable, and taken page by page where it is much."""

import psutil
import pytest

from swarm.protocol.session_memory import MAPPED_BYTES, allocate
from swarm.wire.limits import GIB, MIB


@pytest.mark.parametrize("size", [1, MAPPED_BYTES - 1, MAPPED_BYTES, MAPPED_BYTES + 1])
def test_memory_is_writable_and_of_its_size(size: int) -> None:
    memory = allocate(size)
    memory[0] = 1
    memory[size - 1] = 255
    assert memory.nbytes == size
    assert not memory.readonly
    assert bytes(memory[: min(size, 3)])[-1] in {0, 1, 255}


def test_announcing_much_costs_little_until_it_comes() -> None:
    process = psutil.Process()
    before = process.memory_info().rss
    memory = allocate(GIB)
    memory[5] = 1
    assert process.memory_info().rss - before < 16 * MIB
