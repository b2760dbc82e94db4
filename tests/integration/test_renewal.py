"""A peer whose leaf is past half its life goes on with a new one, for calls both ways."""

from pathlib import Path

from swarm.services.renewal import renew_if_due
from swarm.testing.cluster import Cluster, memory_networks

YEAR = 365 * 86400.0


async def test_a_leaf_is_renewed_once_due_and_links_go_on_with_it(tmp_path: Path) -> None:
    async with Cluster(tmp_path, networks=memory_networks()) as cluster:
        bootstrap = await cluster.add_bootstrap()
        peer = await cluster.add_peer(memory=1000)
        before = peer.identity.leaf
        now = cluster.clock.wall()
        assert not await renew_if_due(peer.pool, peer.config.folder, now=now)
        assert await renew_if_due(peer.pool, peer.config.folder, now=now + 0.6 * YEAR)
        assert peer.identity.leaf != before
        for node in (bootstrap, peer):  # the new leaf began a year before it was made, and counts now too
            assert not await renew_if_due(node.pool, node.config.folder, now=now)
        await cluster.end(peer)
        again = await cluster.start_again(peer)
        await cluster.until(lambda: bootstrap.identity.peer in again.links)
        assert again.identity.peer == peer.identity.peer
