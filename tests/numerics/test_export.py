"""A captured graph is what ``torch.export`` made of the model: its own module agrees, gradients included."""

import copy

import pytest
import torch
from torch.utils import _pytree as pytree

from swarm.testing.graphs import GraphRun
from swarm.testing.zoo import ZOO
from swarm.train.capture import Mode, capture, set_mode
from swarm.train.capture.experts import batched_experts
from swarm.train.capture.quiet import quiet
from swarm.train.capture.wrapper import ModelWithLoss


@pytest.mark.timeout(600)
@pytest.mark.parametrize("mode", ["train", "evaluate"])
@pytest.mark.parametrize("name", ZOO)
def test_the_graph_agrees_with_the_module_of_torch_export(name: str, mode: Mode) -> None:
    torch.manual_seed(0)
    model, entry = ZOO[name].make(), ZOO[name]
    fields = entry.sample(torch.Generator().manual_seed(0))
    run = GraphRun(capture(model, fields, loss=entry.loss, mode=mode), list(fields.values()))
    wrapper = ModelWithLoss(copy.deepcopy(model), entry.loss, tuple(fields))
    set_mode(wrapper.model, mode)
    with quiet(), batched_experts(wrapper.model):
        exported = torch.export.export(wrapper, tuple(fields.values()), strict=False).module()
        loss, outputs = exported(*fields.values())
    assert run.loss.item() == pytest.approx(loss.item(), rel=1e-6)
    found = [leaf for leaf in pytree.tree_leaves(outputs) if leaf is not loss]
    for ours, theirs in zip(run.outputs, found, strict=True):
        torch.testing.assert_close(ours, theirs.detach(), rtol=1e-5, atol=1e-6)
    buffers = {key.removeprefix("model."): buffer for key, buffer in exported.named_buffers()}
    for key, buffer in run.updates.items():
        torch.testing.assert_close(buffer, buffers[key])
    if mode == "train":
        trained = {key.removeprefix("model."): p for key, p in exported.named_parameters()}
        reached = {key: p for key, p in trained.items() if key in run.gradients}
        gradients = torch.autograd.grad(loss, list(trained.values()), allow_unused=True)
        assert [
            key for key, g in zip(trained, gradients, strict=True) if (g is None) != (key not in reached)
        ] == []
        largest = max(g.abs().max() for g in gradients if g is not None)
        for key, gradient in zip(trained, gradients, strict=True):
            if gradient is not None:
                assert (run.gradients[key] - gradient).abs().max() <= 1e-6 * largest, key
