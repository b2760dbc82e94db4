"""Models of the zoo, trained by real processes: a bootstrap node and three peers that are all needed."""

from pathlib import Path

import pytest

from peer.demo import run as demo
from peer.demo.options import DemoOptions
from swarm.clock import elapsed
from swarm.services.training.author import prepare_job
from swarm.testing.zoo.jobs import zoo_job

PEERS = 3


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", ["qwen3", "unet", "fadnet"])
async def test_processes_train_a_model_to_the_bits_of_one_and_as_pytorch_does(
    name: str, tmp_path: Path
) -> None:
    prepared = prepare_job(zoo_job(name, steps=4))
    options = DemoOptions(peers=PEERS, verify=True, output=tmp_path / "weights.safetensors")
    memory = demo._memory_of_each(prepared, PEERS)
    result = await demo._run(options, prepared, memory, tmp_path, whole=False, began=elapsed())
    assert len(result.loss) == 4
    assert sorted(stage for peer in result.peers for stage in peer.stages) == list(range(PEERS))
    assert result.comparison is not None
    assert result.comparison.good, result.comparison
