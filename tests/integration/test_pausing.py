"""Peers that are paused, and peers that are ended: what they offer, take, and wait for."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from bootstrap.hosting import Hosted
from bootstrap.running import _INTERRUPT
from peer.commands import peer as command
from peer.config import PeerOptions
from swarm.errors import MisuseError
from swarm.protocol import offers
from swarm.services.job import Job
from swarm.services.training.author import prepare_job
from swarm.services.training.node import TrainingNode
from swarm.testing.cluster import Cluster, memory_networks
from swarm.testing.sizing import memory_of
from swarm.train.job import TrainingJob

MakeJob = Callable[..., TrainingJob]
PLENTY = 64 << 20


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans soon after the last offer."""
    monkeypatch.setattr(offers, "SETTLE_SECONDS", 0.3)


async def test_a_paused_peer_is_given_nothing_until_it_is_resumed(tmp_path: Path, make_job: MakeJob) -> None:
    prepared = prepare_job(make_job())
    async with Cluster(tmp_path, networks=memory_networks()) as cluster:
        await cluster.add_bootstrap()
        peer, author = await cluster.add_peer(memory=PLENTY), await cluster.add_author()
        for node in (author, cluster.nodes[0]):
            with pytest.raises(MisuseError, match="holds no stages, only peers do"):
                node.set_paused(paused=True)
        peer.set_paused(paused=True)
        peer.set_paused(paused=True)
        await cluster.until(lambda: peer.identity.peer in author.links)
        job = await author.author.publish(prepared, patience=60.0)
        await cluster.until(lambda: job.heard and "peers that offer memory" in job.sentence)
        status = peer.status()
        assert status.peer.paused == peer.paused_since
        assert status.waiting is not None
        assert status.waiting.reason == "its user to resume it (it is paused)"
        assert status.waiting.since == status.peer.paused
        assert (job.state, peer.held()) == ("waiting", ())
        peer.set_paused(paused=False)
        await cluster.until(lambda: job.step > 0)
        told = [event.kind for event in peer.status().events if event.kind in {"paused", "resumed"}]
        assert told == ["paused", "resumed"]
        assert peer.status().peer.paused is None


async def at_work(cluster: Cluster, make_job: MakeJob) -> tuple[Job, TrainingNode, TrainingNode]:
    """A job without end that needs both peers: its coordinator, and the other one."""
    prepared = prepare_job(make_job(steps=100_000))
    await cluster.add_bootstrap()
    peers = [await cluster.add_peer(memory=memory_of(prepared, 2)) for _ in range(2)]
    author = await cluster.add_author()
    await cluster.until(lambda: all(peer.identity.peer in author.links for peer in peers))
    job = await author.author.publish(prepared, patience=60.0)
    await cluster.until(lambda: job.step > 0 and all(peer.held() for peer in peers))
    return job, *sorted(peers, key=lambda peer: peer.identity.peer != job.coordinator)


async def test_who_is_ended_waits_for_others_to_take_over_and_no_longer_than_it_has(
    tmp_path: Path, make_job: MakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Cluster(tmp_path, networks=memory_networks()) as cluster:
        job, coordinator, peer = await at_work(cluster, make_job)

        async def serve(node: TrainingNode, reason: str, **options: int) -> None:
            hosted = Hosted(node=node, status_url="http://127.0.0.1:1/")
            task = asyncio.ensure_future(command._serve(PeerOptions(**options), hosted))  # noqa: TID251
            await asyncio.sleep(0)
            task.cancel(reason)
            with pytest.raises(asyncio.CancelledError):
                await task

        await serve(coordinator, _INTERRUPT)  # its job stops without it
        await serve(peer, "something else went wrong")
        await serve(peer, _INTERRUPT, parent=1)
        assert (coordinator.paused_since, peer.paused_since) == (None, None)

        monkeypatch.setattr(command, "HAND_OVER_SECONDS", 0.01)
        await serve(peer, _INTERRUPT)
        assert peer.paused_since is not None
        assert peer.held(), "there was no time"
        waiting = peer.status().waiting
        assert waiting is not None
        assert waiting.reason == "others to take over 1 stage (it is paused)"

        monkeypatch.setattr(command, "HAND_OVER_SECONDS", 60.0)
        asyncio.get_running_loop().call_later(0.01, coordinator.jobs.cancel, job)
        await serve(peer, _INTERRUPT)
        assert peer.held() == ()
        await serve(peer, _INTERRUPT)  # it has nothing to hand over
