"""A peer whose disk has no room while a job runs: the job ends well, and the peer says what is wrong."""

from collections.abc import Callable
from pathlib import Path

import pytest

from swarm.protocol import lines
from swarm.services.training.author import prepare_job
from swarm.services.training.node import TrainingNode
from swarm.testing.cluster import Cluster, memory_networks
from swarm.testing.disks import fill, small_disk
from swarm.testing.sizing import memory_of
from swarm.train.job import TrainingJob
from swarm.wire.limits import MIB

MakeJob = Callable[..., TrainingJob]
STEPS = 200


def troubles(node: TrainingNode) -> list[str]:
    return [event.sentence for event in node.story.events() if event.kind == "trouble"]


@pytest.mark.parametrize("coordinates", [True, False], ids=["coordinator", "holder"])
async def test_a_disk_that_fills_up_while_a_job_runs_ends_it_for_nobody(
    tmp_path: Path, make_job: MakeJob, monkeypatch: pytest.MonkeyPatch, coordinates: bool
) -> None:
    monkeypatch.setattr(lines, "SNAPSHOT_SECONDS", 0.1)
    monkeypatch.setattr(lines, "LEAD_SECONDS", 0.1)
    prepared = prepare_job(make_job(steps=STEPS))
    with small_disk(tmp_path / "swarm/node-2", 8 * MIB), small_disk(tmp_path / "swarm/node-3", 8 * MIB):
        async with Cluster(tmp_path / "swarm", networks=memory_networks()) as cluster:
            await cluster.add_bootstrap()
            nodes = [await cluster.add_peer(memory=memory_of(prepared, 2)) for _ in range(2)]
            author = await cluster.add_author()
            job = await author.author.publish(prepared, patience=60.0)

            def kept() -> bool:
                held = [stage for node in nodes for stage in node.held()]
                return len(held) == len(nodes) and all(stage.snapshot for stage in held)

            await cluster.until(kept)
            for node in nodes:
                stages = node.status().jobs[0].stages
                [copy] = [stage.snapshot for stage in stages if stage.holder == node.identity.peer]
                assert copy is not None
                assert (copy.step > 0, copy.bytes > 0, copy.peers[0]) == (True, True, node.identity.peer)
            [full] = [node for node in nodes if (node.identity.peer == job.coordinator) == coordinates]

            def told() -> list[str]:
                """What is said once no older copy makes room for the next one."""
                fill(full.config.folder)
                return [line for line in troubles(full) if "blocks are kept in memory" in line]

            await cluster.until(lambda: job.ended or bool(told()))
            await cluster.until(lambda: job.ended)
            assert (job.state, job.sentence) == ("done", "the trained weights are in the swarm")
            await author.export(job.id, tmp_path / "weights.safetensors")
            [line] = told()
            assert "No space left on device: free some space there" in line
            assert job.step == STEPS
