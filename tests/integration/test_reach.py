"""A connection explains itself: in the status, and over restarts."""

from pathlib import Path

import pytest

from swarm.services.members import load_members
from swarm.services.node import Node
from swarm.services.status.document import LinkStatus, MemberStatus
from swarm.testing.cluster import Cluster, memory_networks
from swarm.wire.limits import MIB


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path / "swarm", networks=memory_networks())


def link_to(node: Node, other: Node) -> LinkStatus:
    return next(link for link in node.status().links if link.peer == other.identity.peer)


def member_of(node: Node, other: Node) -> MemberStatus:
    return next(member for member in node.status().members if member.id == other.identity.peer)


async def test_a_link_and_a_member_without_one_say_what_each_address_answered(cluster: Cluster) -> None:
    async with cluster:
        door = await cluster.add_bootstrap()
        peer = await cluster.add_peer(memory=MIB)
        [call] = link_to(peer, door).attempts
        assert (call.address, call.answer) == (door.addresses[0], "")
        assert link_to(door, peer).attempts == (), "it did not call"
        await cluster.end(peer)
        await cluster.until(lambda: not member_of(door, peer).linked)
        with pytest.raises(Exception, match="does not listen"):
            await door.pool.dial(peer.addresses, expect=peer.identity.peer)
        [call] = member_of(door, peer).attempts
        assert (call.address, call.answer) == (peer.addresses[0], "does not listen (connection refused)")
        assert call.seconds < 5.0


async def test_good_addresses_are_remembered_over_restarts(cluster: Cluster) -> None:
    """The door of the invite is gone for good; a peer that was met before opens instead."""
    async with cluster:
        door = await cluster.add_bootstrap()
        one, two = [await cluster.add_peer(memory=MIB) for _ in range(2)]
        await cluster.until(lambda: two.identity.peer in one.links)
        await cluster.end(one)
        await cluster.end(door)
        met = {met.peer: met for met in load_members(one.config.folder)}
        assert met[door.identity.peer].reached == door.addresses[0]
        back = await cluster.start_again(one)
        assert list(back.links) == [two.identity.peer]
