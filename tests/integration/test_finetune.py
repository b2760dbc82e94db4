"""The example of fine-tuning, at a small size: adapters over a frozen model, trained, exported and loaded."""

import copy
import dataclasses
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from swarm.services.status.source import Selection
from swarm.services.training.author import prepare_job
from swarm.services.training.verify import Trained, verify
from swarm.testing.cluster import Cluster, memory_networks
from swarm.testing.sizing import memory_of
from swarm.train.device import DeviceThread
from swarm.train.job import TrainingJob, load_job

EXAMPLE = Path(__file__).parents[2] / "examples" / "finetune.py"


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> TrainingJob:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    found = load_job(EXAMPLE)
    fields = [field[:64] for field in found.dataset]  # type: ignore[attr-defined]
    held_out = [field[:8] for field in found.held_out]  # type: ignore[union-attr]
    return dataclasses.replace(
        found,
        dataset=tuple(fields),
        held_out=tuple(held_out),
        micro_batch_size=4,
        micro_batches=2,
        steps=3,
    )


async def test_adapters_alone_are_trained_exported_and_loaded(job: TrainingJob, tmp_path: Path) -> None:
    prepared = prepare_job(job)
    whole, adapters = tmp_path / "whole.safetensors", tmp_path / "adapters.safetensors"
    async with Cluster(tmp_path / "swarm", networks=memory_networks()) as cluster:
        await cluster.add_bootstrap()
        memory = memory_of(prepared, 2)
        for _ in range(2):
            await cluster.add_peer(memory=memory)
        author = await cluster.add_author()
        published = await author.author.publish(prepared, patience=60.0)
        await cluster.until(lambda: published.ended)
        assert published.state == "done", published.sentence
        report = await author.export(published.id, adapters, Selection(only_trained=True))
        await author.export(published.id, whole)
    trained = load_file(adapters)
    names = {name for name, parameter in job.model.named_parameters() if parameter.requires_grad}
    assert set(trained) == names
    assert report.tensors == len(names) == 32
    assert all(name.endswith((".up", ".down")) for name in names)
    assert adapters.stat().st_size < whole.stat().st_size / 4

    fresh = copy.deepcopy(job.model)
    missing, unexpected = fresh.load_state_dict(trained, strict=False)
    assert (set(missing), unexpected) == (set(job.model.state_dict()) - names, [])
    everything = load_file(whole)
    assert all(torch.equal(tensor, everything[key]) for key, tensor in fresh.state_dict().items())
    assert any(not torch.equal(tensor, job.model.state_dict()[key]) for key, tensor in trained.items())

    result = Trained(losses=published.losses, validations=published.validations, weights=whole)
    async with DeviceThread(torch.device("cpu")) as device:
        found = await device.run(verify, prepared, result, torch.device("cpu"), cancelled=lambda: False)
    assert found.good, found
