"""Out of memory: a stage does its work again, to the same bits, and gives up with a sentence."""

from collections.abc import Callable, Collection
from functools import cache
from typing import Any

import pytest
import torch
from torch import nn

from swarm.errors import DeviceMemoryError, TrainingError
from swarm.graph.cut import legal_bounds
from swarm.ids import ValueId
from swarm.train.capture import Captured, capture
from swarm.train.failures import failing, is_out_of_memory
from swarm.train.lockstep import Lockstep, LockstepJob
from swarm.train.optimizer import AdamW, to_manifest
from swarm.train.redoing import REDOS, Redoing
from swarm.train.stage import StageExecutor

CPU = torch.device("cpu")
STEPS, MICRO_BATCHES = 2, 3
NO_MACHINE_HAS = 2**50
"""Bytes."""


class Model(nn.Module):
    """Statistics that change with each micro-batch, and dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Dropout(0.5), nn.Linear(8, 3)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


def fields(index: int) -> tuple[torch.Tensor, torch.Tensor]:
    chance = torch.Generator().manual_seed(index)
    return torch.randn(5, 4, generator=chance), torch.randint(0, 3, (5,), generator=chance)


@cache
def captured() -> Captured:
    torch.manual_seed(0)
    return capture(Model(), fields(0), loss=nn.functional.cross_entropy)


def made(prepare: Callable[[StageExecutor], None] = lambda _: None) -> Lockstep:
    """The model in two stages, the first of them prepared."""
    graph = captured().graph

    def batch(step: int, micro_batch: int) -> dict[ValueId, torch.Tensor]:
        return dict(zip(graph.inputs(), fields(10 * step + micro_batch), strict=True))

    job = LockstepJob(
        graph=graph,
        evaluation=None,
        tensors=captured().tensors,
        optimizer=to_manifest(AdamW(lr=0.1, clip_norm=0.5)),
        micro_batches=MICRO_BATCHES,
        steps=STEPS,
        seed=5,
        batch=batch,
    )
    legal = [place for place, fine in enumerate(legal_bounds(graph)) if fine]
    lockstep = Lockstep(job, (0, legal[-2], legal[-1]), CPU)
    prepare(lockstep.executors[0])
    return lockstep


def trained(lockstep: Lockstep) -> dict[str, bytes]:
    losses = [lockstep.step(step).loss for step in range(STEPS)]
    found = {name: tensor.numpy().tobytes() for name, tensor in lockstep.tensors().items()}
    return found | {"losses": repr(losses).encode()}


class Full:
    """Stands in for an operator, and asks the allocator for too much at some of its calls, or going back."""

    def __init__(
        self, call: Callable[..., Any], *, forward: Collection[int], backward: Collection[int]
    ) -> None:
        self.call, self.forward, self.backward = call, forward, backward
        self.calls = self.returns = 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.calls += 1
        if self.calls in self.forward:
            torch.empty(NO_MACHINE_HAS, dtype=torch.uint8)
        result = self.call(*args, **kwargs)
        if isinstance(result, torch.Tensor) and result.requires_grad:
            result.register_hook(self._hook)
        return result

    def _hook(self, _: torch.Tensor) -> None:
        self.returns += 1
        if self.returns in self.backward:
            torch.empty(NO_MACHINE_HAS, dtype=torch.uint8)


def fills_up(
    executor: StageExecutor, *, forward: Collection[int] = (), backward: Collection[int] = ()
) -> None:
    """Let the stage's ``tanh``, after its normalisation and before dropout, meet a full device."""
    for instruction in executor._pass._program.instructions:
        if instruction.operator.target == "aten.tanh.default":
            full = Full(instruction.call, forward=forward, backward=backward)
            object.__setattr__(instruction, "call", full)  # it is frozen, and in more than one list


@pytest.fixture(scope="module")
def undisturbed() -> dict[str, bytes]:
    return trained(made())


@pytest.mark.parametrize(
    ("forward", "backward"),
    [({2}, set()), (set(), {2}), ({1, 2}, set()), (set(), {1, 2}), ({4}, {5})],
)
def test_a_step_that_is_done_again_leaves_the_bits_of_one_that_never_failed(undisturbed, forward, backward):
    told: list[str] = []

    def prepare(executor: StageExecutor) -> None:
        fills_up(executor, forward=forward, backward=backward)
        executor.redoing.on_redo = told.append

    assert trained(made(prepare)) == undisturbed
    assert len(told) == len(forward) + len(backward)
    assert all("of stage 1" in sentence or "tanh" in sentence for sentence in told)
    assert all(str(NO_MACHINE_HAS) in sentence for sentence in told)


def test_gradients_that_were_being_added_up_are_added_once(undisturbed, monkeypatch):
    parameters = made().executors[0]._parameters
    kind, calls = type(parameters), iter(range(100))
    accumulate = kind.accumulate

    def interrupted(self: Any, gradients: list[torch.Tensor | None]) -> None:
        if gradients and next(calls) in {0, 4}:
            first, *others = gradients
            accumulate(self, [first, *[None] * len(others)])
            gradients[0] = None
            torch.empty(NO_MACHINE_HAS, dtype=torch.uint8)
        accumulate(self, gradients)

    monkeypatch.setattr(kind, "accumulate", interrupted)
    assert trained(made()) == undisturbed


def test_a_stage_gives_up_after_two_and_says_what_was_asked_what_is_free_and_what_to_do():
    lockstep = made(lambda executor: fills_up(executor, forward={2, 3, 4}))
    with pytest.raises(
        DeviceMemoryError,
        match=rf"operator tanh in module 'layers\.2' .*{NO_MACHINE_HAS} bytes.*done again 2 times.*"
        r"GiB of .* free on cpu: give this peer less with --memory, or the job a smaller micro_batch_size",
    ):
        trained(lockstep)


def test_what_is_let_go_is_let_go_before_work_is_done_again():
    order: list[str] = []

    def work() -> None:
        order.append("work")
        if len(order) < 2 * REDOS:
            raise DeviceMemoryError("full")

    redoing = Redoing(CPU, lambda: order.append("let go"))
    redoing.do(work)
    assert order == ["work", "let go"] * REDOS + ["work"]


def test_other_errors_are_not_done_again():
    redoing = Redoing(CPU, lambda: pytest.fail("let go"))
    with pytest.raises(TrainingError, match="shapes"):
        redoing.do(no_product)


def no_product() -> None:
    with failing("a product"):
        torch.ones(2, 3) @ torch.ones(2, 3)


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("CUDA out of memory"), MemoryError()])
def test_what_devices_say_when_they_are_full_is_understood(error):
    assert is_out_of_memory(error)
    assert not is_out_of_memory(RuntimeError("shapes cannot be multiplied"))
