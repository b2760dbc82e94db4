import asyncio
import threading
from typing import Any

import pytest
import torch

from swarm.compress.codec import Request
from swarm.compress.ladder import Encoded, TakenApart, plainly, take_apart
from swarm.services.training.outbox import Outbox
from swarm.wire.codecs import CodecSpec


def plain(value: float) -> TakenApart:
    encoded = plainly(torch.tensor([value]))
    return TakenApart(encode=lambda: encoded, plain=encoded)


def held(value: float, gate: threading.Event) -> TakenApart:
    """One whose coding takes as long as ``gate`` is shut."""
    encoded = plainly(torch.tensor([value]))

    def encode() -> Encoded:
        assert gate.wait(30)
        return encoded

    return TakenApart(encode=encode)


class Heard(list[Any]):
    """What a callback was called with, and a wait for more of it."""

    def __init__(self) -> None:
        super().__init__()
        self._more = asyncio.Event()

    def __call__(self, item: object) -> None:
        self.append(item)
        self._more.set()

    async def reach(self, count: int) -> None:
        async with asyncio.timeout(30):
            while len(self) < count:
                self._more.clear()
                await self._more.wait()


def numbers(sent: list[Any]) -> list[float]:
    return [float(torch.frombuffer(bytearray(encoded.payload), dtype=torch.float32)[0]) for encoded in sent]


async def test_what_needs_no_coding_goes_at_once() -> None:
    sent = Heard()
    Outbox(pytest.fail).post(plain(1.0), sent)
    assert numbers(sent) == [1.0]


async def test_nothing_overtakes_what_is_still_being_coded() -> None:
    sent = Heard()
    gate, outbox = threading.Event(), Outbox(pytest.fail)
    outbox.post(held(1.0, gate), sent)
    outbox.post(plain(2.0), sent)
    tensor = torch.randn(64, 64)
    coded = take_apart(tensor, CodecSpec("int8"), Request(seed=0, gradient=False))
    outbox.post(coded, sent)
    assert sent == []
    gate.set()
    await sent.reach(3)
    assert numbers(sent[:2]) == [1.0, 2.0]
    assert sent[2].coding is not None


async def test_a_failure_is_told_once_and_nothing_is_sent_after_it() -> None:
    told = Heard()
    sent = Heard()

    def fail() -> Encoded:
        raise MemoryError

    outbox = Outbox(told)
    outbox.post(TakenApart(encode=fail), sent)
    outbox.post(plain(1.0), sent)
    await told.reach(1)
    assert [type(error) for error in told] == [MemoryError]
    assert sent == []


async def test_once_closed_nothing_is_sent() -> None:
    sent = Heard()
    gate, outbox = threading.Event(), Outbox(pytest.fail)
    outbox.post(held(1.0, gate), sent)
    outbox.close()
    gate.set()
    later = Heard()
    again = Outbox(pytest.fail)
    again.post(held(2.0, gate), later)
    await later.reach(1)
    assert sent == []
