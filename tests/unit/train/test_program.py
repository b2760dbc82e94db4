import threading
from functools import cache

import pytest
import torch
from msgspec.structs import replace
from torch import nn

from swarm.compress.layout import travels
from swarm.errors import TrainingError
from swarm.graph.cut import cut
from swarm.graph.dag import Graph, operator_inputs
from swarm.ids import ValueId
from swarm.train.capture import Captured, capture
from swarm.train.program import Program
from swarm.train.program_seeds import Seeds

CPU = torch.device("cpu")
SEEDS = Seeds(job=1, mode="train", step=0, micro_batch=0)
OTHER_SEEDS = Seeds(job=2, mode="train", step=3, micro_batch=1)


class Model(nn.Module):
    """Dropout, a thin slice, a detached use, and values that are used more than once."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 40)
        self.outer = nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = nn.functional.dropout(self.inner(x), 0.5, self.training)
        part = h[:, 3:5]
        return self.outer(part * h.detach().mean() + part)


@cache
def sample() -> tuple[Captured, tuple[torch.Tensor, torch.Tensor]]:
    """The captured model and a micro-batch for it."""
    torch.manual_seed(0)
    example = (torch.randn(3, 4), torch.randn(3, 2))
    return capture(Model(), example, loss=nn.functional.mse_loss), example


def prepared() -> tuple[Graph, Program, dict[ValueId, torch.Tensor]]:
    """The model as a one-stage program, and the values that it starts from."""
    captured, example = sample()
    graph = captured.graph
    (stage,) = cut(graph, [0, len(graph.operators)])
    bound = {
        index: {
            value: captured.tensors[graph.values[value].name].clone().requires_grad_()
            for value in operator_inputs(graph.operators[index])
            if graph.values[value].kind == "parameter"
        }
        for index in stage.operators
    }
    return graph, Program(graph, stage, bound, CPU), dict(zip(graph.inputs(), example, strict=True))


def test_values_require_gradients_exactly_where_the_graph_says_and_have_layouts_that_travel():
    graph, program, values = prepared()
    seen: dict[str, torch.Tensor] = {}

    def look(instruction, read, made):
        seen.update({graph.values[v].name: values[v] for v in instruction.operator.outputs if v in values})

    program.run(values, seeds=SEEDS, record=True, inspect=look)
    wanted = {value.name: value.differentiable for value in graph.values if value.name in seen}
    assert len(wanted) == sum(value.kind == "output" for value in graph.values)
    assert {name: tensor.requires_grad for name, tensor in seen.items()} == wanted
    assert not all(wanted.values())
    assert all(travels(tensor) for tensor in seen.values())


def test_only_what_the_stage_keeps_is_left():
    graph, program, values = prepared()
    program.run(values, seeds=SEEDS, record=True)
    assert set(values) == {graph.loss}


def test_without_recording_nothing_requires_gradients_and_the_numbers_are_the_same():
    graph, program, values = prepared()
    plain = dict(values)
    program.run(values, seeds=SEEDS, record=True)
    program.run(plain, seeds=SEEDS, record=False)
    assert not plain[ValueId(graph.loss)].requires_grad
    assert torch.equal(plain[ValueId(graph.loss)], values[ValueId(graph.loss)])
    assert torch.is_grad_enabled()


def test_random_operators_depend_on_their_seed_and_on_nothing_else():
    losses = []
    for micro_batch, noise in ((0, 1), (0, 2), (1, 1)):
        graph, program, values = prepared()
        torch.manual_seed(noise)
        program.run(values, seeds=Seeds(job=1, mode="train", step=0, micro_batch=micro_batch), record=True)
        losses.append(values[ValueId(graph.loss)].item())
    assert losses[0] == losses[1] != losses[2]


def test_programs_of_several_nodes_in_one_process_do_not_draw_from_each_others_seeds():
    graph, program, values = prepared()
    alone = dict(values)
    program.run(alone, seeds=SEEDS, record=True)
    _, other, others = prepared()
    seed, threads = program._seed, []

    def disturbed(number: int) -> None:
        seed(number)
        thread = threading.Thread(target=lambda: other.run(dict(others), seeds=OTHER_SEEDS, record=True))
        thread.start()
        thread.join(0.2)  # it has to wait for its turn
        threads.append(thread)

    program._seed = disturbed
    program.run(values, seeds=SEEDS, record=True)
    for thread in threads:
        thread.join()
    assert threads
    assert values[ValueId(graph.loss)].equal(alone[ValueId(graph.loss)])


def test_a_failing_operator_is_named_with_its_cause():
    _, program, values = prepared()
    values[ValueId(0)] = torch.zeros(3, 5)
    with pytest.raises(
        TrainingError, match=r"the operator linear in module 'inner' at test_program\.py:\d+ failed: .*shapes"
    ):
        program.run(values, seeds=SEEDS, record=True)


def test_an_operator_with_another_number_of_outputs_is_named():
    graph, _, _ = prepared()
    first = replace(graph.operators[0], outputs=(*graph.operators[0].outputs, -1))
    graph = replace(graph, operators=(first, *graph.operators[1:]))
    (stage,) = cut(graph, [0, len(graph.operators)])
    with pytest.raises(
        TrainingError, match=r"returns 1 tensors with torch .*, and 2 where the model was captured"
    ):
        Program(graph, stage, {}, CPU)
