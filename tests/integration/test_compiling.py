"""A peer that was asked to compile its stages, and has nothing to do it with."""

import logging
from collections.abc import Callable
from pathlib import Path

import pytest
from torch._inductor import config as inductor

from swarm.services.training.author import prepare_job
from swarm.services.training.node import capabilities
from swarm.testing.cluster import Cluster, memory_networks
from swarm.testing.sizing import memory_of
from swarm.train.job import TrainingJob

MakeJob = Callable[..., TrainingJob]


@pytest.mark.timeout(300)
async def test_a_peer_that_cannot_compile_says_so_and_trains(
    tmp_path: Path, make_job: MakeJob, caplog: pytest.LogCaptureFixture
) -> None:
    prepared = prepare_job(make_job())
    async with Cluster(tmp_path, networks=memory_networks()) as cluster:
        await cluster.add_bootstrap()
        peer = await cluster.add_peer(memory=memory_of(prepared, 1), compiles=True)
        assert not capabilities(peer.gift).like, "its bits are no other's"
        await peer.device.run(setattr, inductor.cpp, "cxx", ("no-such-compiler",))  # in that thread alone
        await peer.device.run(setattr, inductor, "force_disable_caches", True)
        author = await cluster.add_author()
        with caplog.at_level(logging.WARNING):
            job = await author.author.publish(prepared, patience=60.0)
            await cluster.until(lambda: job.ended)
    assert job.state == "done", job.sentence
    said = [record.getMessage() for record in caplog.records if "uncompiled" in record.getMessage()]
    assert len(said) == 1
    assert said[0].startswith("stage 1 runs uncompiled, because compiling failed: ")
