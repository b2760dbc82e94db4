"""On the CPU nothing is copied on the way to links and back; what cannot hold float64 widens elsewhere."""

import pytest
import torch

from swarm.compress.codec import Request, as_bytes
from swarm.compress.ladder import take_apart
from swarm.compress.layout import dump, holds, in_float64
from swarm.compress.staging import enter, leave, pins, room
from swarm.wire.codecs import CodecSpec

CPU = torch.device("cpu")
NOWHERE = torch.device("fpga")
"""A kind that torch knows by name, and no build of it has."""


def test_a_tensor_leaves_the_cpu_as_it_is() -> None:
    tensor = torch.arange(12.0)
    assert leave(tensor)() is tensor
    _, payload = dump(tensor)
    data = as_bytes(tensor)()
    tensor[0] = 7.0
    assert torch.frombuffer(payload, dtype=torch.float32)[0] == 7.0
    assert data[:4].view("float32")[0] == 7.0


def test_memory_of_the_cpu_enters_it_without_a_copy_and_is_not_pinned() -> None:
    memory = room(12, torch.float32, CPU)
    assert not memory.is_pinned()
    assert enter(memory, CPU) is memory


def test_what_is_sent_as_it_is_is_there_at_once_on_the_cpu() -> None:
    request = Request(seed=0, gradient=False)
    assert take_apart(torch.ones(300), CodecSpec(), request).plain is not None


@pytest.mark.parametrize(("kind", "pinning"), [("cuda", True), ("xpu", True), ("mps", False), ("cpu", False)])
def test_pinned_memory_is_for_devices_with_memory_of_their_own(kind: str, pinning: bool) -> None:
    assert pins(torch.device(kind)) is pinning


def test_numbers_of_64_bits_are_made_where_there_are_some() -> None:
    tensor = torch.full((3,), 0.1)
    assert in_float64(tensor).tolist() == [float(tensor[0])] * 3
    assert holds(CPU, torch.float64)
    assert not holds(NOWHERE, torch.float64)
