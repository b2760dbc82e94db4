"""Revocation in whole swarms: real nodes and real TLS, over networks in memory."""

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from swarm.errors import RemoteRefusalError
from swarm.identity.authority import Authority
from swarm.identity.revocation_list import MAX_REVOKED
from swarm.identity.revocations import Revocations
from swarm.ids import PeerId, base32
from swarm.protocol.trust import MAX_STRIKES
from swarm.services.node import Node
from swarm.services.revoked import REVOCATIONS_FILE
from swarm.services.training.author import prepare_job
from swarm.services.training.node import TrainingNode
from swarm.testing.cluster import Cluster, memory_networks
from swarm.train.job import TrainingJob
from swarm.wire.limits import MIB
from swarm.wire.messages.hello import RevocationNews

MakeJob = Callable[..., TrainingJob]


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path / "swarm", networks=memory_networks())


async def linked(cluster: Cluster, nodes: Iterable[Node]) -> None:
    everybody = {node.identity.peer for node in nodes}
    await cluster.until(lambda: all(everybody - {n.identity.peer} <= n.links.keys() for n in nodes))


def revoke(cluster: Cluster, node: Node, at: Node) -> None:
    """What ``swarm revoke`` does, told to ``at``."""
    authority, member = cluster.authority, node.identity.member
    assert authority.revoke(peers=[member.peer], invites=[member.invite], now=cluster.clock.wall())
    known = authority.revocations
    assert at.revoked.learn(known.lists, known.epoch_key)


async def told(cluster: Cluster, nodes: Iterable[Node]) -> None:
    number = cluster.authority.revocations.number
    await cluster.until(lambda: all(node.revocations.number == number for node in nodes))


async def refused(node: Node, by: Node) -> str:
    with pytest.raises(RemoteRefusalError) as caught:
        await node.pool.dial(by.addresses)
    assert caught.value.code == "revoked"
    return str(caught.value)


async def test_who_is_revoked_is_out_of_every_link_and_stays_out(cluster: Cluster) -> None:
    async with cluster:
        door = await cluster.add_bootstrap()
        out, stays, other = [await cluster.add_peer(memory=MIB) for _ in range(3)]
        await linked(cluster, [door, out, stays, other])
        revoke(cluster, out, at=stays)
        rest = [door, stays, other]
        await told(cluster, rest)
        await cluster.until(lambda: not out.links)
        await linked(cluster, rest)
        for node in rest:
            assert "the organiser revoked you" in await refused(out, by=node)
            kept = Revocations.load(node.config.folder / REVOCATIONS_FILE, authority=node.identity.authority)
            assert out.identity.peer in kept.peers


async def test_a_new_key_by_a_revoked_invite_is_refused_too(cluster: Cluster) -> None:
    async with cluster:
        door = await cluster.add_bootstrap()
        out = await cluster.add_peer(memory=MIB)
        revoke(cluster, out, at=door)
        await cluster.until(lambda: not out.links)
        again = cluster.make_peer(out.identity.invite)
        with pytest.raises(RemoteRefusalError, match="the organiser revoked your invite"):
            await cluster.enter(again)


async def test_a_newcomer_is_given_the_new_dht_key_with_the_list(cluster: Cluster) -> None:
    async with cluster:
        door = await cluster.add_bootstrap()
        out = await cluster.add_peer(memory=MIB)
        revoke(cluster, out, at=door)
        first = await cluster.add_peer(memory=MIB)
        second = await cluster.add_peer(memory=MIB)
        # They can find each other by the DHT alone, under the key that the revoked one does not have.
        await linked(cluster, [door, first, second])
        epochs = {node.pool.reception.epoch for node in (door, first, second)}
        assert {epoch.number for epoch in epochs} == {1}
        assert len(epochs) == 1
        assert out.pool.reception.epoch.number == 0


async def test_a_node_that_was_away_hears_of_it_and_those_who_were_told_first_tell_it(
    cluster: Cluster,
) -> None:
    async with cluster:
        await cluster.add_bootstrap()
        out, stays, away = [await cluster.add_peer(memory=MIB) for _ in range(3)]
        await linked(cluster, [out, stays, away])
        await cluster.end(away)
        revoke(cluster, out, at=stays)
        back = await cluster.start_again(away)
        await told(cluster, [back])
        await refused(out, by=back)


async def test_a_list_lasts_over_restarts_of_everybody_else(cluster: Cluster) -> None:
    async with cluster:
        door = await cluster.add_bootstrap()
        out, stays = [await cluster.add_peer(memory=MIB) for _ in range(2)]
        revoke(cluster, out, at=stays)
        await told(cluster, [door, stays])
        await cluster.end(stays)
        back = await cluster.start_again(stays)
        assert back.revocations.number == 1
        assert back.pool.reception.epoch == door.pool.reception.epoch
        await refused(out, by=back)


async def test_lists_of_two_copies_of_the_authority_meet(cluster: Cluster) -> None:
    async with cluster:
        door = await cluster.add_bootstrap()
        one, two, stays = [await cluster.add_peer(memory=MIB) for _ in range(3)]
        await linked(cluster, [door, one, two, stays])
        mine = cluster.authority
        other = Authority(mine._key, mine.certificate, door_key=mine.door_key, public=mine.public)
        other.revoke(peers=[two.identity.peer], invites=[], now=cluster.clock.wall())
        revoke(cluster, one, at=door)
        assert stays.revoked.learn(other.revocations.lists, other.revocations.epoch_key)
        await cluster.until(lambda: door.revocations.peers == stays.revocations.peers)
        assert door.revocations.peers == {one.identity.peer, two.identity.peer}
        await cluster.until(lambda: door.pool.reception.epoch == stays.pool.reception.epoch)


async def test_the_job_of_a_revoked_author_ends(cluster: Cluster, make_job: MakeJob) -> None:
    async with cluster:
        door = await cluster.add_bootstrap()
        holder = await cluster.add_peer(memory=1)
        author = await cluster.add_author()
        await linked(cluster, [door, holder, author])
        job = await author.author.publish(prepare_job(make_job()), patience=60.0)
        await cluster.until(lambda: all(node.jobs.get(job.id) is not None for node in (door, holder)))
        revoke(cluster, author, at=door)
        here = holder.jobs.get(job.id)
        assert here is not None
        await cluster.until(lambda: here.ended)
        assert (here.state, here.sentence) == (
            "cancelled",
            f"its author {author.identity.peer[:8]} was revoked",
        )
        late = await cluster.add_peer(memory=1)
        await linked(cluster, [door, holder, late])
        assert late.jobs.get(job.id) is None


async def test_a_forged_list_costs_its_sender_the_link(cluster: Cluster) -> None:
    async with cluster:
        door = await cluster.add_bootstrap()
        forger = await cluster.add_peer(memory=MIB)
        stranger = Authority.create("test", public=False, now=cluster.clock.wall())
        stranger.revoke(peers=[door.identity.peer], invites=[], now=cluster.clock.wall())
        forger.send(
            door.identity.peer,
            RevocationNews(lists=stranger.revocations.lists, epoch_key=stranger.revocations.epoch_key),
        )
        await cluster.until(
            lambda: any("broke the protocol" in event.sentence for event in door.story.events())
        )
        assert door.revocations.number == 0


async def test_no_member_can_change_the_dht_key(cluster: Cluster) -> None:
    async with cluster:
        door = await cluster.add_bootstrap()
        peer: TrainingNode = await cluster.add_peer(memory=MIB)
        victim = await cluster.add_peer(memory=MIB)
        revoke(cluster, victim, at=door)
        await told(cluster, [peer])
        before = door.pool.reception.epoch
        peer.send(door.identity.peer, RevocationNews(lists=peer.revocations.lists, epoch_key=b"x" * 32))
        peer.send(door.identity.peer, RevocationNews(lists=(), epoch_key=b"y" * 32))
        late = await cluster.add_peer(memory=MIB)
        await linked(cluster, [door, peer, late])
        assert {node.pool.reception.epoch for node in (door, peer, late)} == {before}


async def test_old_lists_without_end_cost_their_sender_the_link_and_change_nothing(cluster: Cluster) -> None:
    async with cluster:
        door = await cluster.add_bootstrap()
        member, one, two = [await cluster.add_peer(memory=MIB) for _ in range(3)]
        await linked(cluster, [door, member, one, two])
        revoke(cluster, one, at=door)
        old = cluster.authority.revocations.lists
        revoke(cluster, two, at=door)
        await told(cluster, [member])
        known = door.revocations.lists
        for _ in range(MAX_STRIKES + 10):
            member.send(door.identity.peer, RevocationNews(lists=old, epoch_key=b""))
        await cluster.until(
            lambda: any("lists that are known here" in event.sentence for event in door.story.events())
        )
        assert door.revocations.lists == known


async def test_a_list_of_ten_thousand_reaches_everybody(cluster: Cluster) -> None:
    async with cluster:
        door = await cluster.add_bootstrap()
        out, stays = [await cluster.add_peer(memory=MIB) for _ in range(2)]
        await linked(cluster, [door, out, stays])
        many = [PeerId(base32(number.to_bytes(20, "big"))) for number in range(MAX_REVOKED - 1)]
        authority = cluster.authority
        authority.revoke(peers=[out.identity.peer, *many], invites=(), now=cluster.clock.wall())
        assert door.revoked.learn(authority.revocations.lists, authority.revocations.epoch_key)
        await told(cluster, [stays])
        await cluster.until(lambda: not out.links)
        late = await cluster.add_peer(memory=MIB)
        await linked(cluster, [door, stays, late])
        assert late.revocations.lists == door.revocations.lists


async def test_who_is_revoked_in_the_middle_of_training_is_out_and_the_job_says_why(
    cluster: Cluster, make_job: MakeJob
) -> None:
    async with cluster:
        door = await cluster.add_bootstrap()
        holder = await cluster.add_peer(memory=64 * MIB)
        author = await cluster.add_author()
        await linked(cluster, [door, holder, author])
        job = await author.author.publish(prepare_job(make_job(steps=100_000)), patience=60.0)
        await cluster.until(lambda: len(job.losses) > 2)
        revoke(cluster, holder, at=door)
        await cluster.until(lambda: not holder.links and job.ended)
        assert job.state == "failed"
        assert f"coordinator {holder.identity.peer[:8]} was revoked" in job.sentence
