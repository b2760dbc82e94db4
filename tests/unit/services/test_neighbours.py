"""Whom a node calls, by what gossip and jobs say."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from swarm.ids import PeerId
from swarm.services.neighbours import ENOUGH_LINKS, Neighbours

STRANGER, MEMBER, COORDINATOR, HOLDER = (PeerId(letter * 32) for letter in "abcd")


def neighbours(links: int, *, ended: bool = False) -> Neighbours:
    plan = SimpleNamespace(stages=[SimpleNamespace(holder=HOLDER)])
    job = SimpleNamespace(coordinator=COORDINATOR, plan=plan, ended=ended)
    context = SimpleNamespace(links=dict.fromkeys(range(links)))
    gossip = SimpleNamespace(knows=lambda peer: peer != STRANGER)
    parts: tuple[Any, ...] = (context, gossip, SimpleNamespace(all=lambda: (job,)))
    return Neighbours(*cast("Any", parts))


@pytest.mark.parametrize("peer", [STRANGER, MEMBER, COORDINATOR, HOLDER])
def test_in_a_small_swarm_everybody_is_called(peer: PeerId) -> None:
    assert neighbours(ENOUGH_LINKS - 1).wants(peer)


def test_with_enough_links_only_strangers_and_those_that_a_job_needs_are_called() -> None:
    full = neighbours(ENOUGH_LINKS)
    assert [full.wants(peer) for peer in (STRANGER, MEMBER, COORDINATOR, HOLDER)] == [True, False, True, True]


def test_a_job_that_has_ended_needs_nobody() -> None:
    full = neighbours(ENOUGH_LINKS, ended=True)
    assert not full.wants(COORDINATOR)
    assert not full.wants(HOLDER)
