"""A peer that lacks an operator takes part all the same; a job that nobody can run says what is missing."""

from collections.abc import Callable
from pathlib import Path

import pytest

from swarm.services.training import node as module
from swarm.services.training.author import prepare_job
from swarm.testing.cluster import Cluster, memory_networks
from swarm.testing.sizing import memory_of
from swarm.train.job import TrainingJob

LOSS = "aten.cross_entropy_loss.default"
"""What the last stage runs."""


async def test_a_peer_gets_no_stage_with_what_it_lacks_until_nobody_is_left(
    tmp_path: Path, make_job: Callable[..., TrainingJob], monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared = prepare_job(make_job(steps=2))
    memory = memory_of(prepared, 2)
    async with Cluster(tmp_path, networks=memory_networks()) as cluster:
        await cluster.add_bootstrap()
        whole = await cluster.add_peer(memory=memory)
        monkeypatch.setattr(module, "lacking", lambda operators, device: (LOSS,))
        limited = await cluster.add_peer(memory=2 * memory)
        author = await cluster.add_author()
        job = await author.author.publish(prepared, patience=60.0)
        await cluster.until(lambda: job.ended)
        assert job.state == "done", job.sentence
        assert job.plan is not None
        assert [stage.holder for stage in job.plan.stages] == [limited.identity.peer, whole.identity.peer]
        assert f"peer {limited.identity.peer[:8]} cannot run {LOSS}" in job.plan.explanation

        await cluster.end(whole)
        refused = await author.author.publish(prepared, patience=4.0)
        await cluster.until(lambda: refused.ended)
        assert refused.state == "failed"
        assert refused.sentence == (
            f"after 4 s: nobody can run {LOSS}: update torch, or start another peer; "
            f"peer {limited.identity.peer[:8]} cannot run {LOSS}"
        )
