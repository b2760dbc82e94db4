"""Getting into a swarm whose doors are closed, gone, or were never there."""

import dataclasses
from pathlib import Path

import pytest

from swarm.errors import FailureError
from swarm.identity.membership import Identity
from swarm.net.address import Address
from swarm.services.node import Node
from swarm.testing.cluster import Cluster, home_networks, loopback_networks, memory_networks


async def test_two_peers_in_one_network_need_no_bootstrap_node(tmp_path: Path) -> None:
    async with Cluster(tmp_path, networks=home_networks) as cluster:
        first = cluster.make_peer(cluster.invite())
        second = cluster.make_peer(cluster.invite())
        await cluster.enter(first)
        assert not first.has_joined
        waiting = first.status().waiting
        assert waiting is not None
        assert waiting.reason.startswith("the invite has no address in it and no peer of the swarm answers")
        await cluster.enter(second)
        await cluster.until(lambda: first.has_joined and second.has_joined)
        assert [link.path for link in first.links.values()] == ["direct"]
        assert {record.peer for record in await first.entrance.discovery.find()} == {
            first.identity.peer,
            second.identity.peer,
        }


async def again(cluster: Cluster, node: Node) -> Node:
    """A node in the home of ``node``, which has ended, on its port."""
    port = Address.parse(node.addresses[0]).port
    config = dataclasses.replace(node.config, listen=Address(node.config.listen.host, port))
    identity = Identity.load(config.folder)
    started = Node(config, identity=identity, clock=cluster.clock, networks=loopback_networks(""))
    await cluster.enter(started)
    return started


async def test_a_peer_that_finds_the_door_closed_says_so_and_goes_in_once_it_opens(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        bootstrap = await cluster.add_bootstrap()
        (door,) = cluster.addresses
        await cluster.end(bootstrap)
        peer = cluster.make_peer(cluster.invite())
        await cluster.enter(peer)
        status = peer.status()
        assert not peer.has_joined
        assert status.waiting is not None
        assert status.waiting.reason.startswith(f"no bootstrap node answers: {door} (")
        (attempt,) = status.waiting.doors
        assert (attempt.seed, attempt.source, attempt.family) == (door, "invite", "IPv4")
        assert "connection refused" in attempt.answer
        assert any(event.kind == "trouble" and door in event.sentence for event in status.events)
        await again(cluster, bootstrap)
        await cluster.until(lambda: peer.has_joined and bool(peer.links))
        after = peer.status().waiting
        assert after is not None
        assert after.reason == "a job that needs this peer"


async def test_who_came_for_one_thing_is_told_and_does_not_stay(tmp_path: Path) -> None:
    async with Cluster(tmp_path, networks=memory_networks()) as cluster:
        cluster.addresses = ("10.0.0.99:7423",)
        with pytest.raises(FailureError, match=r"no bootstrap node answers: 10\.0\.0\.99:7423 "):
            await cluster.add_author()


async def test_without_bootstrap_nodes_a_peer_comes_back_by_those_it_remembers(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        bootstrap = await cluster.add_bootstrap()
        nodes = [cluster.make_peer(cluster.invite()) for _ in range(2)]
        for node in nodes:
            await cluster.enter(node)
        await cluster.until(lambda: all(len(node.links) == 2 for node in nodes))
        await cluster.end(bootstrap)
        await cluster.end(nodes[0])
        back = await again(cluster, nodes[0])
        await cluster.until(lambda: nodes[1].identity.peer in back.links)
        assert back.has_joined


async def test_a_bootstrap_node_without_room_sends_a_newcomer_on_to_others(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        bootstrap = await cluster.add_bootstrap(links=2)
        first, second = (cluster.make_peer(cluster.invite()) for _ in range(2))
        for node in (first, second):
            await cluster.enter(node)
        await cluster.until(lambda: len(bootstrap.links) == 2)
        newcomer = cluster.make_peer(cluster.invite())
        await cluster.enter(newcomer)
        others = {first.identity.peer, second.identity.peer}
        await cluster.until(lambda: set(newcomer.links) == others)
        assert newcomer.has_joined
        assert newcomer.identity.admission
        assert set(bootstrap.links) == others
        ends = [event.sentence for event in newcomer.story.events() if event.kind == "left"]
        assert any("busy: I have 2 links, and that is my limit" in sentence for sentence in ends)
