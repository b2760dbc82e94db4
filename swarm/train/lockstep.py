"""All stages of a job in one process, one after the other: what the pipeline computes, without the pipeline.

Used with one stage by ``--verify`` (the second contract of decision D5), with any cut by tests: the results
must not differ in a single bit, unless a codec that loses some is in between. Every boundary tensor is taken
apart and rebuilt as if it had crossed a link.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch

from swarm.compress.boundaries import Boundaries, Passage, codecs_of
from swarm.compress.codec import Place
from swarm.compress.ladder import plainly, put_together, read
from swarm.errors import LocalError, TrainingError
from swarm.graph.cut import cut, shared_parameters
from swarm.graph.dag import Graph, activations
from swarm.graph.evaluation import evaluation_stages
from swarm.graph.stage import Stage
from swarm.ids import OperatorIndex, ValueId
from swarm.protocol.passes import Passes
from swarm.protocol.settlement import Settlement, Validation, settle
from swarm.train.optimizer import learning_rate
from swarm.train.stage import StageExecutor, StageTask
from swarm.train.stage_pass import ForwardResult
from swarm.wire.codecs import CodecSpec
from swarm.wire.messages.pipeline import Fence, Phase, StageReport
from swarm.wire.records.manifest import Optimizer

Batch = Mapping[ValueId, torch.Tensor]
"""The model inputs of one micro-batch, by their values in the graph."""

_NOBODY = "a" * 52
"""Stands for a job id in reports that never leave the process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LockstepJob:
    """A job to train in one process."""

    graph: Graph
    evaluation: Graph | None
    tensors: Mapping[str, torch.Tensor]
    """Initial parameters, buffers and constants of both graphs, by name."""
    optimizer: Optimizer
    micro_batches: int
    steps: int
    seed: int
    batch: Callable[[int, int], Batch]
    """The inputs of (step, micro-batch)."""
    held_out: Callable[[int], Batch] | None = None
    """The inputs of one micro-batch of an evaluation pass."""
    held_out_batches: int = 0
    validate_every: int = 0
    """Steps between evaluation passes before the last step; 0 for none."""
    validation_batches: int = 0
    """Micro-batches of these."""
    recompute: bool = False
    """Whether stages do what one does that is short of memory."""

    @property
    def passes(self) -> Passes:
        """All of its passes."""
        evaluates = self.held_out is not None and self.held_out_batches > 0
        return Passes(first_step=0, steps=self.steps, evaluates=evaluates, validate_every=self.validate_every)


@dataclass(frozen=True, slots=True, kw_only=True)
class LockstepRun:
    """What training came to."""

    losses: tuple[float, ...]
    """Mean over the micro-batches, of each step."""
    validations: tuple[Validation, ...]
    """In order; the last one after the last step, where there are held-out samples."""
    tensors: dict[str, torch.Tensor]
    """Every parameter and buffer of the job after the last step, and every constant."""
    averages: dict[str, torch.Tensor]
    """The averages of the trained parameters, where the job keeps some."""

    @property
    def held_out(self) -> float | None:
        """The held-out loss after the last step."""
        return self.validations[-1].loss if self.validations else None


class Lockstep:
    """The stages between ``bounds`` of a job, in one process.

    ``codecs`` are those of the stages, as in a plan; without, every element travels as it is. ``encodings``
    are those of single steps where they change, as step records have them.
    """

    def __init__(
        self,
        job: LockstepJob,
        bounds: Sequence[int],
        device: torch.device,
        codecs: Sequence[CodecSpec] = (),
        encodings: Mapping[int, Sequence[CodecSpec]] | None = None,
    ) -> None:
        self.job = job
        self.device = device
        self.stages = cut(job.graph, bounds)
        self.shared = shared_parameters(job.graph, self.stages)
        self._done = 0
        """Training steps so far."""
        self._codecs = {0: codecs or [CodecSpec()] * len(self.stages)} | dict(encodings or {})
        """From which step on which, by stage."""
        self._activations = {
            "train": activations(job.graph),
            "evaluate": activations(job.evaluation or job.graph),
        }
        self.boundaries = [Boundaries(job.seed, device) for _ in self.stages]
        self._evaluation: Sequence[Stage] = ()
        if job.evaluation is not None:
            self._evaluation = evaluation_stages(job.graph, self.stages, job.evaluation)
        self.executors = [StageExecutor(self._task(stage), job.tensors, device) for stage in self.stages]

    def _task(self, stage: Stage) -> StageTask:
        evaluation = self.job.evaluation
        return StageTask(
            graph=self.job.graph,
            stage=stage,
            evaluation=None if evaluation is None else (evaluation, self._evaluation[stage.index]),
            optimizer=self.job.optimizer,
            micro_batches=self.job.micro_batches,
            seed=self.job.seed,
            recompute=self.job.recompute,
        )

    def compute(self, step: int) -> list[StageReport]:
        """Run all micro-batches of ``step`` forward and backward, and measure."""
        losses: list[float] = []
        faults: dict[int, tuple[str, bool]] = {}
        for micro_batch in range(self.job.micro_batches):
            results = self._forwards(step, micro_batch)
            losses += [result.loss for result in results if result.loss is not None]
            _note(faults, ((stage, result.fault) for stage, result in enumerate(results)), forward=True)
            _note(faults, self._backwards(step, micro_batch), forward=False)
        gradients = self._shared_gradients()
        reports = []
        for stage, executor in enumerate(self.executors):
            measured = executor.measure(gradients[stage])
            _note(faults, [(stage, measured.fault)], forward=False)
            fault, forward = faults.get(stage, ("", False))
            reports.append(
                StageReport(
                    fence=_fence(step, "train", stage),
                    squares=measured.squares,
                    losses=tuple(losses) if stage == len(self.stages) - 1 else (),
                    fault=fault,
                    fault_forward=forward,
                    compute_seconds=0.0,
                )
            )
        return reports

    def step(self, step: int) -> Settlement:
        """Compute and settle one step, and apply it; raises TrainingError where it cannot be applied."""
        settlement = settle(dict(enumerate(self.compute(step))), clip_norm=self.job.optimizer.clip_norm)
        if settlement.outcome == "failed":
            for executor in self.executors:
                executor.abandon_step()
            raise TrainingError(f"step {step}: {settlement.cause}")
        rate = learning_rate(self.job.optimizer, step, self.job.steps)
        for executor, boundaries in zip(self.executors, self.boundaries, strict=True):
            boundaries.forget()
            executor.apply(settlement.clip, rate)
        for shared in self.shared:
            value = self.executors[shared.owner].shared_value(shared.parameter)
            for stage in {use.stage for use in shared.uses} - {shared.owner}:
                self.executors[stage].adopt_shared({shared.parameter: self._plain(value)})
        self._done += 1
        return settlement

    def validate(self) -> Validation:
        """The mean loss of the held-out samples after the steps so far; LocalError where the job has none."""
        job = self.job
        if job.held_out is None:
            raise LocalError("a job without held-out samples was to be validated")
        count = job.held_out_batches if self._done == job.steps else job.validation_batches
        losses, metrics = [], []
        for index in range(count):
            last = self._evaluate(index, job.held_out(index))
            losses.append(0.0 if last.loss is None else last.loss)
            metrics += [] if last.metric is None else [last.metric]
        metric = sum(metrics) / count if metrics else math.inf
        found = metric if math.isfinite(metric) else None
        return Validation(step=self._done, loss=sum(losses) / count, metric=found)

    def evaluate(self, micro_batch: int, batch: Batch) -> float:
        """The loss of one held-out micro-batch."""
        return self._evaluate(micro_batch, batch).loss or 0.0

    def _evaluate(self, micro_batch: int, batch: Batch) -> ForwardResult:
        """What the last stage makes of one held-out micro-batch."""
        carried: dict[ValueId, torch.Tensor] = {}
        result = ForwardResult(outgoing={}, loss=None, fault="")
        passage = Passage(phase="evaluate", step=self._done, micro_batch=micro_batch, direction="forward")
        for executor, stage in zip(self.executors, self._evaluation, strict=True):
            received = {edge.value: carried[edge.value] for edge in stage.incoming}
            result = executor.evaluate(micro_batch, _inputs(stage, batch), received)
            carried |= self._carried(stage, result.outgoing, passage)
        return result

    def tensors(self) -> dict[str, torch.Tensor]:
        """Every tensor of the job by name; those that no stage owns are the initial ones."""
        found = dict(self.job.tensors)
        for executor in self.executors:
            found |= executor.tensors()
        return found

    def _forwards(self, step: int, micro_batch: int) -> list[ForwardResult]:
        batch = self.job.batch(step, micro_batch)
        carried: dict[ValueId, torch.Tensor] = {}
        results = []
        passage = Passage(phase="train", step=step, micro_batch=micro_batch, direction="forward")
        for executor, stage in zip(self.executors, self.stages, strict=True):
            received = {edge.value: carried[edge.value] for edge in stage.incoming}
            result = executor.forward(step, micro_batch, _inputs(stage, batch), received)
            carried |= self._carried(stage, result.outgoing, passage)
            results.append(result)
        return results

    def _backwards(self, step: int, micro_batch: int) -> list[tuple[int, str]]:
        carried: dict[ValueId, torch.Tensor] = {}
        faults = []
        passage = Passage(phase="train", step=step, micro_batch=micro_batch, direction="backward")
        for executor, stage in zip(reversed(self.executors), reversed(self.stages), strict=True):
            gradients = {edge.value: carried[edge.value] for edge in stage.outgoing if edge.value in carried}
            result = executor.backward(step, micro_batch, gradients)
            for value in gradients:
                del carried[value]
            carried |= self._carried(stage, result.outgoing, passage)
            faults.append((int(stage.index), result.fault))
        return faults

    def _shared_gradients(self) -> list[dict[tuple[ValueId, OperatorIndex], torch.Tensor]]:
        """For each stage, the gradients of uses elsewhere of the shared parameters that it owns."""
        found: list[dict[tuple[ValueId, OperatorIndex], torch.Tensor]] = [{} for _ in self.stages]
        for shared in self.shared:
            for use in shared.uses:
                if use.stage != shared.owner:
                    gradient = self.executors[use.stage].gradient_of_use(shared.parameter, use.operator)
                    found[shared.owner][shared.parameter, use.operator] = self._plain(gradient)
        return found

    def _carried(self, stage: Stage, tensors: Batch, passage: Passage) -> dict[ValueId, torch.Tensor]:
        """What ``stage`` made, as the stages have it that it goes to."""
        forward = passage.direction == "forward"
        edges = stage.outgoing if forward else stage.incoming
        lossy = self._activations[passage.phase]
        codecs = self._codecs[max(step for step in self._codecs if step <= passage.step)]
        senders = {edge.stage: codecs[stage.index if forward else edge.stage] for edge in edges}
        apart = self.boundaries[stage.index].send(tensors, passage, codecs_of(lossy, edges, senders))
        arrived: dict[ValueId, torch.Tensor] = {}
        for edge in edges:
            if edge.value in apart:
                payload = {edge.value: read(apart[edge.value].encode())}
                arrived |= self.boundaries[edge.stage].receive(payload, passage)
        return arrived

    def _plain(self, tensor: torch.Tensor) -> torch.Tensor:
        return put_together(plainly(tensor), Place(device=self.device)).tensor


def run_lockstep(
    job: LockstepJob,
    device: torch.device,
    bounds: Sequence[int] | None = None,
    codecs: Sequence[CodecSpec] = (),
    encodings: Mapping[int, Sequence[CodecSpec]] | None = None,
) -> LockstepRun:
    """Train ``job`` to its end with all stages in this process; without ``bounds`` as one stage.

    Raises TrainingError where a step cannot be applied. To be called on the device thread, since the bits
    depend on its settings (:func:`swarm.train.device.configure_device`).
    """
    lockstep = Lockstep(job, bounds or (0, len(job.graph.operators)), device, codecs, encodings)
    losses: list[float] = []
    validations: list[Validation] = []
    for name in map(job.passes.at, range(job.passes.count)):
        if name.phase == "train":
            losses.append(lockstep.step(name.step).loss)
        else:
            validations.append(lockstep.validate())
    return LockstepRun(
        losses=tuple(losses),
        validations=tuple(validations),
        tensors=lockstep.tensors(),
        averages={name: average for e in lockstep.executors for name, average in e.averages().items()},
    )


def _inputs(stage: Stage, batch: Batch) -> dict[ValueId, torch.Tensor]:
    return {value: batch[value] for value in stage.inputs}


def _note(faults: dict[int, tuple[str, bool]], found: Iterable[tuple[int, str]], *, forward: bool) -> None:
    """Keep each stage's first fault."""
    for stage, fault in found:
        if fault:
            faults.setdefault(stage, (fault, forward))


def _fence(step: int, phase: Phase, stage: int) -> Fence:
    return Fence(job=_NOBODY, step=step, phase=phase, source=stage, target=0, sender=0, receiver=0)
