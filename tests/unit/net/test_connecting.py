"""Connecting to the first of several addresses that answers."""

import asyncio
import socket
from collections.abc import Iterator

import pytest

from swarm.errors import LinkLostError
from swarm.net import connecting
from swarm.net.connecting import Target, connect_first, in_turns

V4, V6 = socket.AF_INET, socket.AF_INET6


@pytest.fixture
def listener() -> Iterator[Target]:
    """A port that takes connections."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield Target(V4, server.getsockname())


SILENT = Target(V4, ("192.0.2.1", 1))
"""An address that never answers, as behind a router that drops."""


@pytest.fixture(autouse=True)
def silence(monkeypatch: pytest.MonkeyPatch) -> None:
    attempt = connecting._attempt

    async def silent(target: Target) -> socket.socket | OSError:
        if target == SILENT:
            await asyncio.get_running_loop().create_future()
        return await attempt(target)

    monkeypatch.setattr(connecting, "_attempt", silent)


@pytest.fixture
def closed() -> Target:
    """A port where nobody listens."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return Target(V4, sock.getsockname())


def test_families_take_turns_and_the_resolvers_first_is_first() -> None:
    six = [Target(V6, (f"2001:db8::{n}", 1)) for n in range(3)]
    four = [Target(V4, ("192.0.2.1", 1))]
    assert in_turns([*six, *four]) == [six[0], four[0], six[1], six[2]]
    assert in_turns([*four, *six]) == [four[0], six[0], six[1], six[2]]
    assert in_turns([]) == []


async def test_an_address_that_says_nothing_costs_its_head_start(
    listener: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connecting, "STAGGER_SECONDS", 0.02)
    loop = asyncio.get_running_loop()
    start = loop.time()
    with await connect_first([SILENT, SILENT, listener]) as sock:
        assert sock.getpeername() == listener.address
    assert loop.time() - start >= 2 * 0.02


async def test_an_address_that_refuses_costs_nothing(closed: Target, listener: Target) -> None:
    with await connect_first([closed, closed, listener]) as sock:
        assert sock.getpeername() == listener.address


async def test_where_none_answers_each_reason_is_given_once(closed: Target) -> None:
    unreachable = Target(V4, ("255.255.255.255", 9))
    with pytest.raises(LinkLostError) as caught:
        await connect_first([closed, closed, unreachable])
    reasons = str(caught.value).split(", ")
    assert reasons[0] == "does not listen (connection refused) at 127.0.0.1"
    assert len(reasons) == 2


async def test_giving_up_leaves_nothing_behind() -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await connect_first([SILENT])
