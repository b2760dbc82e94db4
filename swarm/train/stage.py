"""The stage executor: one stage's forwards, backwards and step boundary, on the device thread (D4, D5).

Its results have the same bits whatever the partition, on like machines: see ``program`` for what that takes.
Nothing here knows of links; the pipeline brings and takes tensors by ``ValueId``. A training step, in order::

    forward(step, 0..M-1, ...)  interleaved with  backward(step, 0..M-1, ...)    both in index order
    gradient_of_use(...)       for each use of a shared parameter that another stage owns
    measure(shared)            sums of squares, with the gradients of uses from other stages
    apply(clip, rate)          or abandon_step(), which leaves no trace
    shared_value(...)          of each owned parameter that other stages use
    adopt_shared(values)       the new values of those that other stages own
"""

import contextlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch

from swarm.errors import LocalError
from swarm.graph.dag import Graph
from swarm.graph.stage import Stage
from swarm.ids import OperatorIndex, ValueId
from swarm.train.failures import failing
from swarm.train.program_seeds import Seeds
from swarm.train.redoing import Redoing
from swarm.train.stage_buffers import Buffers
from swarm.train.stage_evaluation import EvaluationPass
from swarm.train.stage_faults import is_finite
from swarm.train.stage_flights import Flights, Found
from swarm.train.stage_parameters import Parameters
from swarm.train.stage_pass import ForwardResult, StagePass, Tensors
from swarm.train.tensors import shown
from swarm.wire.messages.pipeline import Square
from swarm.wire.records.manifest import Optimizer
from swarm.wire.records.state import StatePart


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTask:
    """What one stage is to do in a job."""

    graph: Graph
    stage: Stage
    evaluation: tuple[Graph, Stage] | None
    """The evaluation graph and this stage's part of it, where the job evaluates."""
    optimizer: Optimizer
    micro_batches: int
    seed: int
    """The job's seed."""
    recompute: bool = False
    """Whether a micro-batch leaves only what came in, and its backward runs the forward again."""
    compiled: bool = False
    """Whether training runs through ``torch.compile``; its last bits are then no other's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackwardResult:
    """Gradients of incoming boundary tensors for one micro-batch.

    A tensor that is missing has no influence on the loss through this or a later stage: an acknowledgement
    goes back in its place. ``fault`` is as in :class:`swarm.train.stage_pass.ForwardResult`.
    """

    outgoing: dict[ValueId, torch.Tensor]
    fault: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """Sums of squares of the owned parameters' gradients, in parameter order, and what is wrong with them."""

    squares: tuple[Square, ...]
    fault: str


class StageExecutor:
    """One stage of one job. All methods run on the device thread.

    ``tensors`` has, by name, the parameters, buffers and constants that the stage needs for both graphs
    (:func:`swarm.graph.stage.tensor_names`); they are copied. Raises RemoteProtocolError where the graph has
    an operator that is not allowed, TrainingError where they do not fit each other, FailureError where this
    torch lacks an operator.
    """

    def __init__(self, task: StageTask, tensors: Mapping[str, torch.Tensor], device: torch.device) -> None:
        self.task = task
        self.device = device
        with failing(f"loading stage {task.stage.index + 1}"):
            self._load(tensors)
        self._flights = Flights(self._pass, self._parameters.leaves(), recompute=task.recompute)
        self.redoing = Redoing(device, self._flights.let_go)
        self._step: int | None = None
        self._forwards = 0
        self._backwards = 0

    def _load(self, tensors: Mapping[str, torch.Tensor]) -> None:
        task, device = self.task, self.device
        graph, stage = task.graph, task.stage
        self._parameters = Parameters(graph, stage, tensors, task.optimizer, device)
        self._buffers = Buffers(graph, stage, tensors, device)
        bound = self._parameters.bound
        self._pass = StagePass(graph, stage, bound, tensors, device, compiled=task.compiled)
        self._copied_parameters = {
            use.value: self._parameters.tensors[use.value].detach()
            for use in stage.parameters
            if any(update.value == use.value for update in stage.updates)
        }
        self._evaluation = (
            None
            if task.evaluation is None
            else EvaluationPass(*task.evaluation, held=self._held(), tensors=tensors, device=device)
        )

    # Micro-batches.

    def forward(self, step: int, micro_batch: int, inputs: Tensors, received: Tensors) -> ForwardResult:
        """Run one micro-batch forward and keep what its backward needs.

        ``inputs`` are the model inputs that this stage reads, ``received`` its incoming boundary tensors on
        the stage's device, which nobody may write to afterwards. Raises TrainingError where an operator
        fails, LocalError where this micro-batch is not next.
        """
        self._begin_step(step)
        self._expect(micro_batch == self._forwards < self.task.micro_batches, f"forward of {micro_batch}")
        result = self.redoing.do(lambda: self._forward(step, micro_batch, inputs, received))
        self._forwards += 1
        return result

    def _forward(self, step: int, micro_batch: int, inputs: Tensors, received: Tensors) -> ForwardResult:
        with self._failing("the forward pass"):
            start = self._pass.begin(inputs, received) | self._buffers.current() | self._copied_parameters
            seeds = self._seeds("train", step, micro_batch)
            values, result = self._flights.forward(micro_batch, start, seeds)
            self._buffers.change(values)
        return result

    def backward(self, step: int, micro_batch: int, gradients: Tensors) -> BackwardResult:
        """Run one micro-batch backward, add up its parameters' gradients, and let go of it.

        ``gradients`` are those of outgoing boundary tensors, from the stages they went to; one that is
        missing is an acknowledgement. Raises TrainingError where an operator fails, LocalError where this
        micro-batch is not next.
        """
        self._expect(step == self._step and micro_batch == self._backwards, f"backward of {micro_batch}")
        self._expect(micro_batch in self._flights, f"backward of {micro_batch} before its forward")
        found, of_parameters = self.redoing.do(lambda: self._backward(micro_batch, gradients))
        self.redoing.do(lambda: self._accumulate(of_parameters))
        self._flights.land(micro_batch)
        outgoing = {value: gradient for value, gradient in found.items() if gradient is not None}
        self._backwards += 1
        broken = [value for value, gradient in outgoing.items() if not is_finite(gradient)]
        return BackwardResult(outgoing=outgoing, fault=self._pass.reader_of(broken[0]) if broken else "")

    def _backward(
        self, micro_batch: int, gradients: Tensors
    ) -> tuple[dict[ValueId, torch.Tensor | None], Found]:
        with self._failing("the backward pass"):
            return self._flights.backward(micro_batch, gradients, 1 / self.task.micro_batches)

    def _accumulate(self, gradients: Found) -> None:
        with self._failing("adding up the gradients"):
            self._parameters.accumulate(gradients)

    # The step boundary.

    def gradient_of_use(self, parameter: ValueId, operator: OperatorIndex) -> torch.Tensor:
        """The step's gradient of one use of a shared parameter, for its owner.

        Raises LocalError for an operator that is no such use in this stage.
        """
        self._expect_complete()
        return self._parameters.gradient_of_use(parameter, operator)

    def measure(self, shared: Mapping[tuple[ValueId, OperatorIndex], torch.Tensor]) -> Measurement:
        """Complete the gradients of owned parameters and measure them.

        ``shared`` has the gradients of uses in other stages of the shared parameters that this stage owns.
        Raises LocalError where one is missing, or a micro-batch is not done.
        """
        self._expect_complete()
        squares = self.redoing.do(lambda: self._measure(shared))
        broken = [square.parameter for square in squares if not math.isfinite(square.total)]
        fault = f"the gradient of {shown(self.task.graph.values[broken[0]].name)}" if broken else ""
        return Measurement(squares=squares, fault=fault)

    def _measure(self, shared: Mapping[tuple[ValueId, OperatorIndex], torch.Tensor]) -> tuple[Square, ...]:
        with self._failing("measuring the gradients"):
            return self._parameters.measure(shared)

    def apply(self, clip: float, learning_rate: float) -> None:
        """Apply the step: adopt changed buffers, scale the gradients by ``clip``, let the optimizer step."""
        self._expect_complete()
        with self._failing("the optimizer"):
            self._buffers.adopt()
            self._parameters.step(clip, learning_rate)
        self._end_step()

    def abandon_step(self) -> None:
        """Forget the step that was begun, if one was; it leaves no trace."""
        self._parameters.forget()
        self._buffers.forget()
        self._flights.forget()
        self._end_step()

    def shared_value(self, parameter: ValueId) -> torch.Tensor:
        """A copy of an owned parameter, for the other stages that use it."""
        return self._parameters.tensors[parameter].detach().clone(memory_format=torch.preserve_format)

    def adopt_shared(self, values: Tensors) -> None:
        """Put the owners' new values of shared parameters in place."""
        self._expect(self._step is None, "a shared value for a step that is not over")
        with self._failing("adopting shared parameters"):
            for parameter, tensor in values.items():
                self._parameters.adopt(parameter, tensor)

    # Between steps.

    def evaluate(self, micro_batch: int, inputs: Tensors, received: Tensors) -> ForwardResult:
        """Run one micro-batch through the evaluation graph with the current parameters and buffers.

        Raises as :meth:`forward` does. Nothing of it stays.
        """
        self._expect(self._step is None, "evaluation within a step")
        if self._evaluation is None:
            raise LocalError(f"stage {self.task.stage.index} has no evaluation graph")
        run, seeds = self._evaluation.run, self._seeds("evaluate", 0, micro_batch)

        def evaluate() -> ForwardResult:
            with self._failing("the evaluation pass"):
                return run(inputs, received, seeds)

        return self.redoing.do(evaluate)

    def tensors(self) -> dict[str, torch.Tensor]:
        """The owned parameters and buffers by name, as they are until the next step is applied.

        Tensors of the job that no stage names here are the initial ones: nothing trains or reads them.
        """
        stage = self.task.stage
        owned = {use.value for use in (*stage.parameters, *stage.buffers) if use.owned}
        graph = self.task.graph
        return {graph.values[v].name: tensor for v, tensor in self._all().items() if v in owned}

    def averages(self) -> dict[str, torch.Tensor]:
        """The averages of the owned parameters by the parameters' names, where the job keeps some."""
        values = self.task.graph.values
        return {values[v].name: tensor for v, tensor in self._parameters.averages.items()}

    def snapshot(self, *, used: bool = False) -> dict[tuple[StatePart, str], torch.Tensor]:
        """Copies on the CPU of all that the owned tensors are and have, by part and name, between two steps.

        An executor of any stage that owns them goes on from there by :meth:`resume`, with the same bits. One
        of the same stage also needs the values of parameters that it only uses (``used``).
        """
        self._expect(self._step is None, "a snapshot within a step")
        values = self.task.graph.values
        state = {
            (part, values[value].name): tensor for (part, value), tensor in self._parameters.state().items()
        }
        plain: dict[tuple[StatePart, str], torch.Tensor] = {
            ("value", name): tensor for name, tensor in (self._held() if used else self.tensors()).items()
        }
        return {key: tensor.detach().to("cpu", copy=True) for key, tensor in (plain | state).items()}

    def resume(self, state: Mapping[tuple[StatePart, str], torch.Tensor]) -> None:
        """Take up the averages and the optimizer's state of a snapshot; its values came with the tensors.

        What is of tensors that this stage does not own is passed over.
        """
        owned = {
            self.task.graph.values[use.value].name: use.value
            for use in self.task.stage.parameters
            if use.owned
        }
        with self._failing("taking up a snapshot"):
            self._parameters.resume(
                {
                    (part, owned[name]): tensor
                    for (part, name), tensor in state.items()
                    if part != "value" and name in owned
                }
            )

    def _all(self) -> dict[ValueId, torch.Tensor]:
        parameters = {value: tensor.detach() for value, tensor in self._parameters.tensors.items()}
        return parameters | self._buffers.tensors

    def _held(self) -> dict[str, torch.Tensor]:
        return {self.task.graph.values[value].name: tensor for value, tensor in self._all().items()}

    # Order of events.

    def _begin_step(self, step: int) -> None:
        if self._step is None:
            self._step = step
        self._expect(step == self._step, f"a forward of step {step}")

    def _expect_complete(self) -> None:
        self._expect(self._backwards == self.task.micro_batches, "a step boundary before the last backward")

    def _end_step(self) -> None:
        self._step = None
        self._forwards = self._backwards = 0

    def _expect(self, holds: bool, otherwise: str) -> None:
        if not holds:
            where = f"stage {self.task.stage.index}, step {self._step}"
            raise LocalError(
                f"{where}: {otherwise} ({self._forwards} forwards, {self._backwards} backwards done)"
            )

    def _failing(self, what: str) -> contextlib.AbstractContextManager[None]:
        return failing(f"{what} of stage {self.task.stage.index + 1}")

    def _seeds(self, mode: Literal["train", "evaluate"], step: int, micro_batch: int) -> Seeds:
        return Seeds(job=self.task.seed, mode=mode, step=step, micro_batch=micro_batch)
