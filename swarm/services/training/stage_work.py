"""What one stage does on the device thread: payloads to tensors, the executor, tensors to payloads."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar, cast

import torch

from swarm.clock import elapsed
from swarm.compress.codec import Encoded
from swarm.compress.lossless import Lossless
from swarm.data.tensors import Array
from swarm.errors import RemoteProtocolError
from swarm.ids import OperatorIndex, ValueId
from swarm.protocol.pipeline_events import AdoptShared, Backward, Forward, Measure, SendShared, Update
from swarm.services.training.arrays import from_array, to_array
from swarm.services.training.loading import LoadedStage
from swarm.train.optimizer import learning_rate
from swarm.train.stage import Measurement
from swarm.train.tensors import check_against
from swarm.wire.messages.pipeline import BoundaryTensor, SharedTensor
from swarm.wire.tensors import DType, TensorHeader

Result = TypeVar("Result")
Arrived = tuple[TensorHeader, memoryview]
"""A tensor as it came: the machine keeps it, and gives it back when its work is due."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """What a piece of work made, ready for the links."""

    tensors: Mapping[ValueId, Encoded] = field(default_factory=dict)
    loss: float | None = None
    fault: str = ""


class StageWork:
    """The device side of one stage. All methods but ``check`` run on the device thread."""

    def __init__(self, loaded: LoadedStage) -> None:
        self._loaded = loaded
        self._executor = loaded.executor
        self._codec = Lossless()
        self._seconds = 0.0

    def check(self, message: BoundaryTensor | SharedTensor, size: int) -> None:
        """Raise RemoteProtocolError unless ``message`` may come with a payload of ``size`` bytes.

        To be called before memory is spent; the rest is decided when it has arrived.
        """
        shared = isinstance(message, SharedTensor)
        graph = self._loaded.graphs["train" if shared else message.fence.phase]
        number = message.parameter if isinstance(message, SharedTensor) else message.tensor
        if number >= len(graph.values):
            raise RemoteProtocolError(f"the graph has no value {number}")
        header = message.header
        if header is not None:
            check_against(header, graph.values[number])
        if size != (header.payload_bytes if header is not None else 0):
            raise RemoteProtocolError(
                f"a tensor message came with {size} bytes, which its header does not say"
            )

    def forward(self, work: Forward, items: Mapping[int, Array]) -> Made:
        """One micro-batch forward."""
        return self._timed(lambda: self._forward(work, items))

    def _forward(self, work: Forward, items: Mapping[int, Array]) -> Made:
        graph = self._loaded.graphs[work.phase]
        places = graph.inputs()
        inputs = {
            places[position]: from_array(item, graph.values[places[position]].spec.dtype)
            for position, item in items.items()
        }
        received = self._decoded(work.received)
        if work.phase == "evaluate":
            result = self._executor.evaluate(work.micro_batch, inputs, received)
        else:
            result = self._executor.forward(work.step, work.micro_batch, inputs, received)
        return Made(tensors=self._encoded(result.outgoing), loss=result.loss, fault=result.fault)

    def backward(self, work: Backward) -> Made:
        """One micro-batch backward."""
        return self._timed(lambda: self._backward(work))

    def _backward(self, work: Backward) -> Made:
        result = self._executor.backward(work.step, work.micro_batch, self._decoded(work.gradients))
        return Made(tensors=self._encoded(result.outgoing), fault=result.fault)

    def measure(self, work: Measure) -> Measurement:
        """Sums of squares of all gradients; nothing in an evaluation pass."""
        if work.phase == "evaluate":
            return Measurement(squares=(), fault="")
        shared = {use: self._tensor(payload) for use, payload in work.shared.items()}
        return self._timed(lambda: self._executor.measure(shared))

    def update(self, work: Update) -> None:
        """Apply the step."""
        manifest = self._loaded.job.manifest
        rate = learning_rate(manifest.optimizer, work.step, manifest.steps)
        self._timed(lambda: self._executor.apply(work.clip, rate))

    def adopt(self, work: AdoptShared) -> None:
        """Put new values of shared parameters in place."""
        self._executor.adopt_shared(self._decoded(work.values))

    def abandon(self) -> None:
        """Forget the step."""
        self._executor.abandon_step()

    def shared(self, work: SendShared) -> Encoded:
        """A shared parameter's gradient of one use, or its new value."""
        if work.direction == "value":
            tensor = self._executor.shared_value(work.parameter)
        else:
            tensor = self._executor.gradient_of_use(work.parameter, OperatorIndex(work.operator))
        return self._codec.encode(tensor, seed=self._loaded.job.manifest.seed)

    def trained(self) -> dict[str, tuple[Array, DType]]:
        """Copies of the owned parameters and buffers, by name."""
        found = {name: to_array(tensor) for name, tensor in self._executor.tensors().items()}
        return {name: (array.copy(), dtype) for name, (array, dtype) in found.items()}

    def take_seconds(self) -> float:
        """Seconds of work since the last call."""
        seconds, self._seconds = self._seconds, 0.0
        return seconds

    def _timed(self, work: Callable[[], Result]) -> Result:
        began = elapsed()
        try:
            return work()
        finally:
            self._seconds += elapsed() - began

    def _encoded(self, tensors: Mapping[ValueId, torch.Tensor]) -> dict[ValueId, Encoded]:
        seed = self._loaded.job.manifest.seed
        return {value: self._codec.encode(tensor, seed=seed) for value, tensor in tensors.items()}

    def _decoded(self, payloads: Mapping[ValueId, object]) -> dict[ValueId, torch.Tensor]:
        return {value: self._tensor(payload) for value, payload in payloads.items()}

    def _tensor(self, payload: object) -> torch.Tensor:
        header, data = cast("Arrived", payload)
        return self._codec.decode(header, data, device=self._executor.device)
