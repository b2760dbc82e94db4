"""Whom a node has met, and where they can be reached again."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from swarm.services.members import KEEP_SECONDS, Members, Met, load_members, save_members
from swarm.testing.clock import ManualClock
from swarm.testing.hellos import NO_CAPABILITIES
from swarm.testing.loop import run_on_manual_clock

ANN, BOB = "a" * 32, "b" * 32


def link(peer: str, *, dialed: bool, address: str, says: tuple[str, ...]) -> Any:
    hello = SimpleNamespace(role="peer", addresses=says, capabilities=NO_CAPABILITIES)
    member = SimpleNamespace(invite="i" * 32, label="x")
    return SimpleNamespace(peer=peer, dialed=dialed, address=address, hello=hello, member=member)


def test_an_address_that_answered_comes_before_those_that_are_only_said() -> None:
    members = Members(ManualClock())
    members.on_up(link(ANN, dialed=True, address="ann.example:1", says=("10.0.0.1:1",)))
    members.on_up(link(BOB, dialed=False, address="192.0.2.7:40000", says=("10.0.0.2:1",)))
    assert members.addresses() == ("ann.example:1", "10.0.0.2:1", "10.0.0.1:1")
    members.on_up(link(ANN, dialed=False, address="192.0.2.8:40000", says=("10.0.0.3:1",)))
    assert members.addresses()[:2] == ("ann.example:1", "10.0.0.3:1"), "a call from there says nothing new"


def test_it_is_there_in_the_next_run_even_of_a_program_that_is_killed(tmp_path: Path) -> None:
    saved: list[tuple[Met, ...]] = []

    async def save(met: tuple[Met, ...]) -> None:
        save_members(tmp_path, met)
        saved.append(met)

    async def story(clock: ManualClock) -> None:
        members = Members(clock)
        keeping = asyncio.create_task(members.keep(save))  # noqa: TID251 - cancelled below, as by a kill
        await asyncio.sleep(10 * KEEP_SECONDS)
        assert saved == []
        members.on_up(link(ANN, dialed=True, address="ann.example:1", says=()))
        members.on_up(link(BOB, dialed=True, address="bob.example:1", says=()))
        await asyncio.sleep(10 * KEEP_SECONDS)
        keeping.cancel()
        assert len(saved) == 1, "two that come at once are written in one go"

    run_on_manual_clock(story)
    again = Members(ManualClock(), known=load_members(tmp_path))
    assert again.addresses() == ("bob.example:1", "ann.example:1")
