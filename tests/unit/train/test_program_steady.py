"""What is the same in every run is made once, and never differs from what making it again would give."""

import pytest
import torch
from torch import nn

from swarm.graph.cut import cut
from swarm.graph.dag import Graph, operator_inputs
from swarm.ids import ValueId
from swarm.train import program_steady
from swarm.train.capture import capture
from swarm.train.program import Program
from swarm.train.program_seeds import Seeds
from swarm.train.program_steady import steady_operators

CPU = torch.device("cpu")
SEEDS = Seeds(job=0, mode="train", step=0, micro_batch=0)


class Masked(nn.Module):
    """A mask of positions that the input meets before and after the mask is made another one."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(4))
        self.register_buffer("shift", torch.ones(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        places = torch.arange(4)
        early = x * places
        later = torch.where(places > 1, 0.5, 2.0)
        noise = torch.rand(4)
        return (early * later + self.scale * self.shift + noise).sum()


def program() -> tuple[Graph, Program]:
    captured = capture(Masked(), (torch.ones(4),))
    graph = captured.graph
    (stage,) = cut(graph, [0, len(graph.operators)])
    (scale,) = graph.of_kind("parameter")
    bound = {
        index: {scale: torch.ones(4)}
        for index in stage.operators
        if scale in operator_inputs(graph.operators[index])
    }
    return graph, Program(graph, stage, bound, CPU)


def started(graph: Graph, x: torch.Tensor) -> dict[ValueId, torch.Tensor]:
    values = {graph.inputs()[0]: x}
    return values | {buffer: torch.ones(4) for buffer in graph.of_kind("buffer")}


def targets(graph: Graph) -> list[str]:
    return [graph.operators[index].target for index in steady_operators(graph, range(len(graph.operators)))]


def test_steady_are_operators_without_inputs_parameters_buffers_and_chance() -> None:
    graph, _ = program()
    assert sorted(targets(graph)) == ["aten.arange.default", "aten.gt.Scalar", "aten.where.Scalar"]


def test_every_run_gives_what_a_run_of_all_operators_gives() -> None:
    graph, ours = program()
    for x in (torch.ones(4), torch.arange(4.0), torch.ones(4)):
        once, all_again = started(graph, x), started(graph, x)
        ours.run(once, seeds=SEEDS, record=True)
        ours.run(all_again, seeds=SEEDS, record=True, inspect=lambda *_: None)
        assert set(once) == set(all_again) == {graph.loss}
        assert torch.equal(once[ValueId(graph.loss)], all_again[ValueId(graph.loss)])


def test_whoever_inspects_a_run_sees_all_operators() -> None:
    graph, ours = program()
    seen: set[int] = set()
    for inspect in (None, lambda instruction, *_: seen.add(instruction.index)):
        ours.run(started(graph, torch.ones(4)), seeds=SEEDS, record=True, inspect=inspect)
    assert seen == set(range(len(graph.operators)))


def test_what_takes_more_memory_than_no_plan_counts_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, _ = program()
    monkeypatch.setattr(program_steady, "MOST_BYTES", 4 * 8 + 4)
    assert sorted(targets(graph)) == ["aten.arange.default", "aten.gt.Scalar"]
