"""Calling lost peers again: whom, where, how soon, and until when."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from itertools import pairwise
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from swarm.errors import FailureError, RemoteRefusalError
from swarm.ids import PeerId
from swarm.net.address import Address
from swarm.protocol.session_events import End
from swarm.services.redialing import (
    ANSWER_SECONDS,
    CLAIMED_CALLS,
    GIVE_UP_SECONDS,
    LONGEST_PAUSE_SECONDS,
    PAUSE_SECONDS,
    Redialing,
)
from swarm.testing.clock import ManualClock
from swarm.testing.loop import run_on_manual_clock

PEER, OTHER = PeerId("a" * 32), PeerId("b" * 32)
SILENT = End(by="network", code="silent", sentence="was silent for 9.0 s")


def broken(
    *, end: End | None = SILENT, dialed: bool = True, hello: Sequence[str] = ("h:1", "h:2"), host: str = "h"
) -> Any:
    return SimpleNamespace(
        peer=PEER,
        end=end,
        dialed=dialed,
        address="d:1",
        remote=Address(host, 50_000),
        hello=SimpleNamespace(addresses=tuple(hello)),
    )


class Street:
    """A pool whose calls are answered as the test says."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.links: dict[PeerId, Any] = {}
        self.calls: list[tuple[float, str]] = []
        self.answer: Callable[[], Awaitable[None]] = self.nothing

    async def nothing(self) -> None:
        await asyncio.sleep(ANSWER_SECONDS)
        raise FailureError("did not answer")

    async def refusal(self) -> None:
        raise RemoteRefusalError("revoked", "was revoked")

    async def duplicate(self) -> None:
        raise RemoteRefusalError("duplicate", "there is a link already")

    async def link(self) -> None:
        self.links[PEER] = object()

    async def dial(self, addresses: Sequence[str], expect: PeerId, *, seconds: float) -> None:
        assert (expect, seconds) == (PEER, ANSWER_SECONDS)
        [address] = addresses
        self.calls.append((self.clock.elapsed(), address))
        await self.answer()


def play(scene: Callable[[Street, Redialing], Awaitable[None]]) -> None:
    async def main(clock: ManualClock) -> None:
        street = Street(clock)
        async with asyncio.TaskGroup() as tasks:
            redialing = Redialing(cast("Any", street), clock=clock, tasks=tasks, random=Random(1))
            await scene(street, redialing)

    run_on_manual_clock(main)


def test_a_path_that_works_again_is_used_within_five_seconds_however_long_it_was_cut() -> None:
    async def scene(street: Street, redialing: Redialing) -> None:
        for cut in (0.0, 3.0, 100.0, 3000.0):
            street.links.clear()
            street.answer = street.nothing
            redialing.lost(broken())
            await asyncio.sleep(cut)
            healed = street.clock.elapsed()
            street.answer = street.link
            await asyncio.sleep(5.0)
            assert PEER in street.links
            assert street.calls[-1][0] - healed < ANSWER_SECONDS + 1.5 * PAUSE_SECONDS + 0.01
            assert not redialing.called

    play(scene)


def test_while_others_are_linked_who_stays_away_is_called_ever_more_rarely_and_in_the_end_not_at_all() -> (
    None
):
    async def scene(street: Street, redialing: Redialing) -> None:
        street.links[OTHER] = object()
        redialing.lost(broken())
        await asyncio.sleep(2 * GIVE_UP_SECONDS)
        times = [at for at, _ in street.calls]
        gaps = [after - before for before, after in pairwise(times)]
        assert max(gaps[:20]) < 3.0
        assert min(gaps[-5:]) > 8.0
        assert max(gaps) < ANSWER_SECONDS + 1.5 * LONGEST_PAUSE_SECONDS
        assert times[-1] < GIVE_UP_SECONDS + 1.5 * LONGEST_PAUSE_SECONDS
        assert not redialing.called

    play(scene)


def test_the_address_that_answered_is_tried_most() -> None:
    async def scene(street: Street, redialing: Redialing) -> None:
        redialing.lost(broken())
        await asyncio.sleep(20.0)
        assert {where for _, where in street.calls} == {"d:1", "h:1", "h:2"}
        assert {where for _, where in street.calls[0:2] + street.calls[3:5]} == {"d:1"}
        street.answer = street.link

    play(scene)


def test_who_had_called_is_tried_where_it_says_that_it_listens() -> None:
    async def scene(street: Street, redialing: Redialing) -> None:
        redialing.lost(broken(dialed=False))
        redialing.lost(broken(dialed=False))
        await asyncio.sleep(10.0)
        assert {where for _, where in street.calls} == {"h:1", "h:2"}
        gaps = [after[0] - before[0] for before, after in pairwise(street.calls)]
        assert min(gaps) >= ANSWER_SECONDS, "once at a time"
        street.answer = street.link

    play(scene)


@pytest.mark.parametrize("dialed", [False, True])
def test_who_only_says_that_it_is_at_somebody_elses_host_has_it_called_a_few_times(dialed: bool) -> None:
    async def scene(street: Street, redialing: Redialing) -> None:
        hello = ("victim:80", "192.0.2.1:7", "no address", "victim:22")
        redialing.lost(broken(dialed=dialed, hello=hello, host="192.0.2.1"))
        await asyncio.sleep(2 * GIVE_UP_SECONDS)
        calls = [where for _, where in street.calls]
        assert sum(where.startswith("victim:") for where in calls) < CLAIMED_CALLS
        assert calls.count("192.0.2.1:7") > 100, "there it was seen"

    async def nowhere(street: Street, redialing: Redialing) -> None:
        redialing.lost(broken(dialed=False, hello=("victim:80",), host="192.0.2.1"))
        await asyncio.sleep(60.0)
        assert len(street.calls) == CLAIMED_CALLS
        assert not redialing.called

    play(scene)
    play(nowhere)


@pytest.mark.parametrize(
    "link",
    [
        broken(end=End(by="them", code="leaving", sentence="Ctrl+C")),
        broken(end=End(by="us", code="revoked", sentence="revoked")),
        broken(dialed=False, hello=()),
    ],
)
def test_who_left_was_sent_away_or_cannot_be_called_is_not_called(link: Any) -> None:
    async def scene(street: Street, redialing: Redialing) -> None:
        redialing.lost(link)
        await asyncio.sleep(10.0)
        assert not street.calls
        assert not redialing.called

    play(scene)


def test_a_refusal_ends_it_unless_it_may_pass() -> None:
    async def scene(street: Street, redialing: Redialing) -> None:
        street.answer = street.duplicate
        redialing.lost(broken())
        await asyncio.sleep(10.0)
        assert len(street.calls) > 3
        street.answer = street.refusal
        await asyncio.sleep(10.0)
        assert not redialing.called

    play(scene)


def test_who_calls_first_is_not_called() -> None:
    async def scene(street: Street, redialing: Redialing) -> None:
        redialing.lost(broken())
        street.links[PEER] = object()
        await asyncio.sleep(10.0)
        assert not street.calls
        assert not redialing.called

    play(scene)
