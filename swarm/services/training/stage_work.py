"""What one stage does on the device thread: payloads to tensors, the executor, tensors to payloads."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar, cast

import torch

from swarm.clock import elapsed
from swarm.compress.boundaries import Boundaries, Direction, Passage, codecs_of
from swarm.compress.codec import Arrived, Place
from swarm.compress.fidelity import Fidelity
from swarm.compress.ladder import Encoded, TakenApart, plainly, put_together
from swarm.data.tensors import Array
from swarm.errors import RemoteProtocolError
from swarm.graph.dag import activations
from swarm.ids import OperatorIndex, PeerId, Step, ValueId, short
from swarm.protocol.encodings import Encodings
from swarm.protocol.passes import PassName
from swarm.protocol.pipeline_events import AdoptShared, Backward, Forward, Measure, SendShared, Update
from swarm.services.training.arrays import from_array, to_array
from swarm.services.training.loading import LoadedStage
from swarm.services.training.snapshots import State
from swarm.train.failures import failed, is_out_of_memory
from swarm.train.optimizer import learning_rate
from swarm.train.stage import Measurement
from swarm.train.tensors import check_against
from swarm.wire.codecs import CodecSpec, entries_kept
from swarm.wire.coding import check_coding
from swarm.wire.messages.pipeline import BoundaryTensor, CodedTensor, Phase, SharedTensor
from swarm.wire.records.manifest import averaged
from swarm.wire.tensors import DType

Result = TypeVar("Result")
Key = TypeVar("Key")
Received = Encoded | Arrived
"""A tensor as it came, its bytes decoded: the machine keeps it, and gives it back when its work is due."""
Arrivals = Mapping[ValueId, Received]


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """What a piece of work made, ready for the links."""

    tensors: Mapping[ValueId, TakenApart] = field(default_factory=dict)
    loss: float | None = None
    metric: float | None = None
    fault: str = ""


class StageWork:
    """The device side of one stage. All methods but those that check or blame run on the device thread."""

    def __init__(self, loaded: LoadedStage, encodings: Encodings) -> None:
        self._loaded = loaded
        self.plan = loaded.plan
        """The plan whose holders are named."""
        self._encodings = encodings
        self._executor = loaded.executor
        self._boundaries = Boundaries(loaded.job.manifest.seed, loaded.executor.device)
        self._activations = {phase: activations(graph) for phase, graph in loaded.graphs.items()}
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
        if isinstance(message, CodedTensor):
            check_coding(message.header, message.coding, size)
        elif size != (header.payload_bytes if header is not None else 0):
            raise RemoteProtocolError(
                f"a tensor message came with {size} bytes, which its header does not say"
            )

    def check_codec(self, message: CodedTensor) -> None:
        """Raise RemoteProtocolError unless ``message`` is encoded as was agreed for its step.

        What another codec, or more entries, would take here is not in the memory that was counted.
        """
        role, name = self._loaded.role, PassName(phase=message.fence.phase, step=Step(message.fence.step))
        sender = message.fence.source if message.direction == "forward" else role.stage
        agreed = CodecSpec() if role.is_spot_check(name, message.micro_batch) else None
        spec, coding = agreed or self._encodings.of(name.step)[sender], message.coding
        kept, bits = (
            (entries_kept(spec.kept, message.header.elements), spec.bits)
            if spec.codec == "topk"
            else (0, None)
        )
        if (coding.codec, coding.kept, coding.bits) != (spec.codec, kept, bits):
            raise RemoteProtocolError(
                f"a tensor came in {coding.codec}, and what was agreed for its step is {spec}"
            )

    @contextmanager
    def blaming(self, value: ValueId, phase: Phase, direction: Direction) -> Iterator[None]:
        """Let a RemoteProtocolError that the tensor ``value`` brings say which stage sent it."""
        try:
            yield
        except RemoteProtocolError as error:
            role, stages = self._loaded.role, self.plan.stages
            route = role.train if phase == "train" else role.evaluate
            edges = route.incoming if direction == "forward" else route.outgoing
            stage = next(edge.stage for edge in edges if edge.value == value)
            who = f"stage {stage + 1} on peer {short(PeerId(stages[stage].holder))}"
            raise RemoteProtocolError(f"{who} sent what none would: {error}") from None

    def _received(self, payloads: Mapping[ValueId, object], passage: Passage) -> dict[ValueId, torch.Tensor]:
        found: dict[ValueId, torch.Tensor] = {}
        for value, payload in cast("Arrivals", payloads).items():
            with self.blaming(value, passage.phase, passage.direction):
                found |= self._roomy(partial(self._boundaries.receive, {value: payload}, passage))
        return found

    def _sent(self, tensors: Mapping[ValueId, torch.Tensor], passage: Passage) -> dict[ValueId, TakenApart]:
        codecs, found = self._codecs(passage), dict[ValueId, TakenApart]()
        for value, tensor in tensors.items():
            found |= self._roomy(partial(self._boundaries.send, {value: tensor}, passage, codecs))
        return found

    def _roomy(self, work: Callable[[], Result]) -> Result:
        """Run ``work`` with boundary tensors, and again where the device had no memory for it."""

        def attempt() -> Result:
            try:
                return work()
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                raise failed(f"coding tensors of stage {self._loaded.role.stage + 1}", error) from error

        return self._executor.redoing.do(attempt)

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
        passage = Passage(phase=work.phase, step=work.step, micro_batch=work.micro_batch, direction="forward")
        received = self._received(work.received, passage)
        if work.phase == "evaluate":
            first = self._loaded.role.is_spot_check(_pass_of(passage), work.micro_batch)
            result = self._executor.evaluate(0 if first else work.micro_batch, inputs, received)
        else:
            result = self._executor.forward(work.step, work.micro_batch, inputs, received)
        sent = self._sent(result.outgoing, passage)
        return Made(tensors=sent, loss=result.loss, metric=result.metric, fault=result.fault)

    def backward(self, work: Backward) -> Made:
        """One micro-batch backward."""
        return self._timed(lambda: self._backward(work))

    def _backward(self, work: Backward) -> Made:
        passage = Passage(phase="train", step=work.step, micro_batch=work.micro_batch, direction="backward")
        gradients = self._received(work.gradients, passage)
        result = self._executor.backward(work.step, work.micro_batch, gradients)
        sent = self._sent(result.outgoing, passage)
        return Made(tensors=sent, fault=result.fault)

    def measure(self, work: Measure) -> Measurement:
        """Sums of squares of all gradients; nothing in an evaluation pass."""
        if work.phase == "evaluate":
            return Measurement(squares=(), fault="")
        shared = self._plain(work.shared)
        return self._timed(lambda: self._executor.measure(shared))

    def update(self, work: Update) -> None:
        """Apply the step."""
        manifest = self._loaded.job.manifest
        rate = learning_rate(manifest.optimizer, work.step, manifest.steps)
        self._boundaries.forget()
        self._timed(lambda: self._executor.apply(work.clip, rate))

    def adopt(self, work: AdoptShared) -> None:
        """Put new values of shared parameters in place."""
        self._executor.adopt_shared(self._plain(work.values))

    def abandon(self) -> None:
        """Forget the step."""
        self._boundaries.forget()
        self._executor.abandon_step()

    def shared(self, work: SendShared) -> Encoded:
        """A shared parameter's gradient of one use, or its new value."""
        if work.direction == "value":
            tensor = self._executor.shared_value(work.parameter)
        else:
            tensor = self._executor.gradient_of_use(work.parameter, OperatorIndex(work.operator))
        return plainly(tensor)

    def trained(self) -> dict[str, tuple[Array, DType]]:
        """Copies of the owned parameters and buffers by name, and of averages under names of their own."""
        averages = {averaged(name): tensor for name, tensor in self._executor.averages().items()}
        found = {name: to_array(tensor) for name, tensor in (self._executor.tensors() | averages).items()}
        return {name: (array.copy(), dtype) for name, (array, dtype) in found.items()}

    def snapshot(self, *, used: bool) -> State:
        """Copies of all that the owned parameters and buffers are and have; with ``used``, of others, too."""
        return {key: to_array(tensor) for key, tensor in self._executor.snapshot(used=used).items()}

    def fidelity(self, direction: Direction) -> Fidelity | None:
        """How near the last tensor that was looked at arrives; None before. May be called from any thread."""
        return self._boundaries.fidelity.get(direction)

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

    def _codecs(self, passage: Passage) -> dict[ValueId, CodecSpec]:
        """The codec of each tensor that is sent: that of its hop, which its gradient takes back."""
        role, codecs = self._loaded.role, self._encodings.of(passage.step)
        if role.is_spot_check(_pass_of(passage), passage.micro_batch):
            codecs = (CodecSpec(),) * len(codecs)
        route = role.train if passage.phase == "train" else role.evaluate
        forward = passage.direction == "forward"
        edges = route.outgoing if forward else route.incoming
        senders = {edge.stage: codecs[role.stage if forward else edge.stage] for edge in edges}
        return codecs_of(self._activations[passage.phase], edges, senders)

    def _plain(self, payloads: Mapping[Key, object]) -> dict[Key, torch.Tensor]:
        """Shared parameters and their gradients, which travel as they are."""
        place = Place(device=self._executor.device)
        return {
            key: put_together(cast("Received", payload), place).tensor for key, payload in payloads.items()
        }


def _pass_of(passage: Passage) -> PassName:
    return PassName(phase=passage.phase, step=Step(passage.step))
