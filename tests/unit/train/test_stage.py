from collections.abc import Mapping
from functools import cache

import pytest
import torch
from msgspec.structs import replace
from torch import nn

from swarm.errors import LocalError, RemoteProtocolError, TrainingError
from swarm.graph.cut import cut, trained_uses
from swarm.graph.dag import Graph
from swarm.graph.evaluation import evaluation_stages
from swarm.ids import OperatorIndex, ValueId
from swarm.train.capture import capture
from swarm.train.optimizer import AdamW, to_manifest
from swarm.train.stage import StageExecutor, StageTask
from swarm.wire.records.manifest import Optimizer, Schedule

CPU = torch.device("cpu")
PLAIN = Optimizer(kind="sgd", lr=0.1, schedule=Schedule(kind="constant", warmup=0, floor=1.0), momentum=0.9)
MICRO_BATCHES = 2


class Tied(nn.Module):
    """An embedding that is used twice, and running statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(6, 4)
        self.norm = nn.BatchNorm1d(4)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        h = self.norm(self.embedding(tokens))
        return torch.tanh(h) @ self.embedding.weight.t()


def batch(index: int) -> tuple[torch.Tensor, torch.Tensor]:
    chance = torch.Generator().manual_seed(index)
    return torch.randint(0, 6, (5,), generator=chance), torch.randint(0, 6, (5,), generator=chance)


@cache
def captured() -> tuple[Graph, Graph, Mapping[str, torch.Tensor]]:
    """Training graph, evaluation graph and initial tensors of ``Tied``."""
    torch.manual_seed(1)
    module = Tied()
    train = capture(module, batch(0), loss=nn.functional.cross_entropy)
    evaluate = capture(module, batch(0), loss=nn.functional.cross_entropy, mode="evaluate")
    return train.graph, evaluate.graph, train.tensors


class Job:
    """``Tied``, cut at ``inner`` bounds, as executors."""

    def __init__(self, *inner: int, optimizer: Optimizer = PLAIN, recompute: bool = False) -> None:
        self.graph, self.evaluation, tensors = captured()
        self.stages = cut(self.graph, [0, *inner, len(self.graph.operators)])
        parts = evaluation_stages(self.graph, self.stages, self.evaluation)
        self.executors = [
            StageExecutor(
                StageTask(
                    graph=self.graph,
                    stage=stage,
                    evaluation=(self.evaluation, part),
                    optimizer=optimizer,
                    micro_batches=MICRO_BATCHES,
                    seed=3,
                    recompute=recompute,
                ),
                tensors,
                CPU,
            )
            for stage, part in zip(self.stages, parts, strict=True)
        ]

    def value(self, name: str) -> ValueId:
        return next(ValueId(i) for i, value in enumerate(self.graph.values) if value.name == name)

    def inputs(self, stage: int, index: int) -> dict[ValueId, torch.Tensor]:
        fields = dict(zip(self.graph.inputs(), batch(index), strict=True))
        return {value: fields[value] for value in self.stages[stage].inputs}


def train(executor: StageExecutor, job: Job, step: int = 0) -> None:
    """All micro-batches of a step of the only stage."""
    for index in range(MICRO_BATCHES):
        executor.forward(step, index, job.inputs(0, 10 * step + index), {})
        executor.backward(step, index, {})


def copies(executor: StageExecutor) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in executor.tensors().items()}


def test_one_stage_names_every_tensor_and_trains_them():
    job = Job()
    (executor,) = job.executors
    before = copies(executor)
    assert set(before) == {
        "embedding.weight",
        "norm.weight",
        "norm.bias",
        "norm.running_mean",
        "norm.running_var",
        "norm.num_batches_tracked",
    }
    train(executor, job)
    measured = executor.measure({})
    assert [square.parameter for square in measured.squares] == sorted(
        job.value(name) for name in ("embedding.weight", "norm.weight", "norm.bias")
    )
    assert measured.fault == ""
    executor.apply(1.0, 0.1)
    after = executor.tensors()
    assert not any(torch.equal(before[name], after[name]) for name in before)
    assert after["norm.num_batches_tracked"].item() == MICRO_BATCHES


def test_the_step_is_that_of_torch_s_own_optimizer_with_the_mean_loss():
    job = Job()
    (executor,) = job.executors
    module = Tied()
    module.load_state_dict(copies(executor))
    optimizer = torch.optim.SGD(module.parameters(), lr=0.05, momentum=0.9)
    for step in range(3):
        train(executor, job, step)
        executor.measure({})
        executor.apply(0.5, 0.05)
        for index in range(MICRO_BATCHES):
            tokens, target = batch(10 * step + index)
            (0.5 * nn.functional.cross_entropy(module(tokens), target) / MICRO_BATCHES).backward()
        optimizer.step()
        optimizer.zero_grad()
    for name, tensor in module.state_dict().items():
        torch.testing.assert_close(executor.tensors()[name], tensor, rtol=1e-5, atol=1e-6)


def test_a_changed_buffer_is_read_by_the_next_micro_batch_and_adopted_with_the_step():
    job = Job()
    (executor,) = job.executors
    train(executor, job)
    assert executor.tensors()["norm.num_batches_tracked"].item() == 0
    executor.measure({})
    executor.apply(1.0, 0.1)
    assert executor.tensors()["norm.num_batches_tracked"].item() == 2


@pytest.mark.parametrize("done", ["a forward", "a backward", "all", "measured"])
def test_an_abandoned_step_leaves_no_trace(done):
    job, fresh = Job(), Job()
    (executor,), (untouched,) = job.executors, fresh.executors
    before = copies(executor)
    executor.forward(0, 0, job.inputs(0, 77), {})
    if done != "a forward":
        executor.backward(0, 0, {})
    if done in {"all", "measured"}:
        executor.forward(0, 1, job.inputs(0, 78), {})
        executor.backward(0, 1, {})
    if done == "measured":
        executor.measure({})
    executor.abandon_step()
    assert all(torch.equal(before[name], tensor) for name, tensor in executor.tensors().items())
    for one in (executor, untouched):
        train(one, job)
        one.measure({})
        one.apply(1.0, 0.1)
    expected = untouched.tensors()
    assert all(torch.equal(expected[name], tensor) for name, tensor in executor.tensors().items())


def test_a_stage_that_recomputes_keeps_what_came_in_and_comes_to_the_same_bits():
    kept, again = Job(), Job(recompute=True)
    for step in range(3):
        losses = []
        for job in (kept, again):
            (executor,) = job.executors
            sent = [executor.forward(step, index, job.inputs(0, 10 * step + index), {}) for index in (0, 1)]
            losses.append([result.loss for result in sent])
            if job is again:
                waiting = [t for f in executor._flights._flying.values() for t in f.start.values()]
                assert waiting
                assert not any(tensor.requires_grad for tensor in waiting)
            for index in (0, 1):
                executor.backward(step, index, {})
        assert losses[0] == losses[1]
        measured = [job.executors[0].measure({}) for job in (kept, again)]
        assert measured[0] == measured[1]
        for job in (kept, again):
            job.executors[0].apply(0.5, 0.1)
    expected, found = kept.executors[0].tensors(), again.executors[0].tensors()
    assert found["norm.num_batches_tracked"].item() == 3 * MICRO_BATCHES
    assert all(torch.equal(tensor, found[name]) for name, tensor in expected.items())


def test_the_order_of_a_step_is_enforced():
    job = Job()
    (executor,) = job.executors
    with pytest.raises(LocalError, match="a step boundary before the last backward"):
        executor.measure({})
    with pytest.raises(LocalError, match="forward of 1"):
        executor.forward(0, 1, job.inputs(0, 0), {})
    executor.abandon_step()
    with pytest.raises(LocalError, match="backward of 0"):
        executor.backward(0, 0, {})
    executor.forward(0, 0, job.inputs(0, 0), {})
    with pytest.raises(LocalError, match="a forward of step 1"):
        executor.forward(1, 1, job.inputs(0, 0), {})
    with pytest.raises(LocalError, match="backward of 1"):
        executor.backward(0, 1, {})
    with pytest.raises(LocalError, match="evaluation within a step"):
        executor.evaluate(0, job.inputs(0, 0), {})
    with pytest.raises(LocalError, match="a shared value for a step that is not over"):
        executor.adopt_shared({})
    executor.forward(0, 1, job.inputs(0, 0), {})
    with pytest.raises(LocalError, match="forward of 2"):
        executor.forward(0, 2, job.inputs(0, 0), {})
    executor.backward(0, 0, {})
    executor.backward(0, 1, {})
    with pytest.raises(LocalError, match="before the gradients are measured"):
        executor.apply(1.0, 0.1)


def test_a_stage_says_what_it_needs_when_it_is_given_something_else():
    job = Job(1)
    first, second = job.executors
    with pytest.raises(LocalError, match=r"stage 0 needs inputs \[0\] and boundary tensors \[\]"):
        first.forward(0, 0, {}, {})
    with pytest.raises(LocalError, match=r"stage 1 needs .*and was given \[1\] and \[\]"):
        second.forward(0, 0, job.inputs(1, 0), {})


def test_gradients_of_values_that_were_never_sent_are_a_bug():
    job = Job(1)
    first, _ = job.executors
    sent = first.forward(0, 0, job.inputs(0, 0), {}).outgoing
    stranger = ValueId(max(sent) + 1)
    with pytest.raises(LocalError, match=rf"gradients of \[{stranger}\]"):
        first.backward(0, 0, {stranger: torch.zeros(1)})


def test_a_shared_parameter_is_summed_by_its_owner_and_returned():
    job = Job(2)
    first, second = job.executors
    weight = job.value("embedding.weight")
    uses = trained_uses(job.graph)[weight]
    for index in range(MICRO_BATCHES):
        result = first.forward(0, index, job.inputs(0, index), {})
        second.forward(0, index, job.inputs(1, index), result.outgoing)
        first.backward(0, index, second.backward(0, index, {}).outgoing)
    with pytest.raises(LocalError, match=r"the gradient of embedding\.weight from operator \d+ has not come"):
        first.measure({})
    with pytest.raises(LocalError, match="does not train parameter"):
        second.gradient_of_use(weight, uses[0])
    part = second.gradient_of_use(weight, uses[1])
    measured = first.measure({(weight, uses[1]): part})
    total = first.gradient_of_use(weight, uses[0]) + part
    found = next(square.total for square in measured.squares if square.parameter == weight)
    assert found == pytest.approx(total.double().square().sum().item(), rel=1e-12)
    assert weight not in {square.parameter for square in second.measure({}).squares}
    first.apply(1.0, 0.1)
    second.apply(1.0, 0.1)
    value = first.shared_value(weight)
    second.adopt_shared({weight: value})
    assert torch.equal(second.shared_value(weight), first.tensors()["embedding.weight"])
    assert "embedding.weight" not in second.tensors()
    value.zero_()
    assert first.tensors()["embedding.weight"].abs().sum() > 0


def test_acknowledgements_in_place_of_gradients_train_nothing():
    job = Job(2)
    first, _ = job.executors
    for index in range(MICRO_BATCHES):
        first.forward(0, index, job.inputs(0, index), {})
        first.backward(0, index, {})
    weight = job.value("embedding.weight")
    assert not first.gradient_of_use(weight, OperatorIndex(0)).any()


def test_evaluation_reads_the_tensors_as_training_leaves_them_and_changes_none():
    job = Job()
    (executor,) = job.executors
    for step in range(2):
        train(executor, job, step)
        executor.measure({})
        executor.apply(1.0, 0.1)
    before = copies(executor)
    module = Tied().eval()
    module.load_state_dict(before)
    found = executor.evaluate(0, job.inputs(0, 5), {})
    tokens, target = batch(5)
    assert found.loss == pytest.approx(nn.functional.cross_entropy(module(tokens), target).item(), rel=1e-6)
    assert all(torch.equal(before[name], tensor) for name, tensor in executor.tensors().items())


def test_a_stage_without_an_evaluation_graph_does_not_evaluate():
    job = Job()
    task = job.executors[0].task
    task = StageTask(
        graph=task.graph,
        stage=task.stage,
        evaluation=None,
        optimizer=PLAIN,
        micro_batches=1,
        seed=0,
    )
    tensors = {value.name: torch.zeros(value.spec.shape) for value in job.graph.values}
    tensors["norm.num_batches_tracked"] = torch.tensor(0)
    with pytest.raises(LocalError, match="no evaluation graph"):
        StageExecutor(task, tensors, CPU).evaluate(0, {}, {})


class Transposed(nn.Module):
    """What crosses the cut is a view of the parameter itself."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight.t()


def test_what_a_link_may_hold_is_never_memory_that_the_optimizer_writes_to():
    torch.manual_seed(0)
    captured = capture(Transposed(), (torch.randn(4, 2), torch.randn(4, 3)), loss=nn.functional.mse_loss)
    stage, _ = cut(captured.graph, [0, 1, len(captured.graph.operators)])
    task = StageTask(
        graph=captured.graph, stage=stage, evaluation=None, optimizer=PLAIN, micro_batches=1, seed=0
    )
    executor = StageExecutor(task, captured.tensors, CPU)
    ((value, sent),) = executor.forward(0, 0, {}, {}).outgoing.items()
    before = sent.clone()
    executor.backward(0, 0, {value: torch.ones_like(sent)})
    executor.measure({})
    executor.apply(1.0, 0.1)
    assert torch.equal(sent, before)
    assert not torch.equal(executor.tensors()["weight"].t(), before)


def test_an_input_out_of_range_names_the_operator():
    job = Job()
    (executor,) = job.executors
    inputs = job.inputs(0, 0)
    inputs[ValueId(0)] = inputs[ValueId(0)] + 100
    with pytest.raises(
        TrainingError, match=r"the operator embedding in module 'embedding' at .* failed: index out of"
    ):
        executor.forward(0, 0, inputs, {})


def test_whatever_torch_raises_in_a_backward_pass_ends_the_job_and_not_the_node(monkeypatch):
    job = Job()
    (executor,) = job.executors
    executor.forward(0, 0, job.inputs(0, 0), {})

    def exhausted(*_: object, **__: object) -> None:
        raise OverflowError

    monkeypatch.setattr(torch.autograd, "grad", exhausted)
    with pytest.raises(TrainingError, match=r"^the backward pass of stage 1 failed: OverflowError$"):
        executor.backward(0, 0, {})


@pytest.mark.parametrize(
    "changes", [{"betas": (1.5, 0.9)}, {"kind": "sgd", "nesterov": True}], ids=["betas", "nesterov"]
)
def test_an_optimizer_that_no_author_may_write_is_refused(changes):
    with pytest.raises(RemoteProtocolError, match="the job's optimizer is none: "):
        Job(optimizer=replace(to_manifest(AdamW(lr=0.1)), **changes))
