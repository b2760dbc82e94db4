"""Loading a stage: from plan and manifest to an executor on the device and a role in the pipeline."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch

from swarm.data.sampler import held_out_batches
from swarm.data.tensors import Array, get_tensor
from swarm.errors import DeviceMemoryError, FailureError
from swarm.graph.cut import shared_parameters
from swarm.graph.dag import Graph
from swarm.graph.evaluation import evaluation_stages
from swarm.graph.stage import Stage, tensor_names
from swarm.ids import Digest, Generation, Incarnation, StageIndex
from swarm.protocol.passes import Passes
from swarm.protocol.pipeline_events import Route, StageRole
from swarm.services.job import Job
from swarm.services.job_blocks import JobBlocks
from swarm.services.job_check import check_memory, cut_as_planned
from swarm.services.training.arrays import from_array
from swarm.services.training.samples import Samples
from swarm.train.device import DeviceThread
from swarm.train.stage import StageExecutor, StageTask
from swarm.wire.codecs import NO_COMPRESSION
from swarm.wire.limits import MAX_MICRO_BATCHES
from swarm.wire.messages.pipeline import Phase
from swarm.wire.records.blobs import TensorBlob
from swarm.wire.records.plan import Plan
from swarm.wire.records.state import StatePart, StateTensor
from swarm.wire.tensors import DType

Arrays = dict[tuple[StatePart, str], tuple[Array, DType]]
"""What a stage begins with, by part and name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedStage:
    """A stage that can run."""

    job: Job
    plan: Plan
    role: StageRole
    graphs: Mapping[Phase, Graph]
    stages: tuple[Stage, ...]
    """All of the training graph."""
    executor: StageExecutor
    samples: Samples


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    """A stage in both graphs."""

    train: Graph
    evaluate: Graph
    stages: tuple[Stage, ...]
    stage: Stage
    evaluation: Stage
    role: StageRole
    recompute: bool


async def load_stage(
    job: Job, plan: Plan, index: StageIndex, *, blocks: JobBlocks, device: DeviceThread, catches_up: bool
) -> LoadedStage:
    """Fetch what stage ``index`` of ``plan`` needs, and build it on the device.

    With ``catches_up`` somebody else goes on with the stage until a record names the step at which it moves.

    Raises FailureError where blocks cannot be had or memory does not suffice, RemoteProtocolError where plan,
    graphs and tensors do not fit each other.
    """
    train, evaluate = await blocks.graphs(job)
    loop = asyncio.get_running_loop()
    parts = await loop.run_in_executor(None, _take_apart, job, plan, index, (train, evaluate))
    role = replace(parts.role, catches_up=Generation(plan.generation)) if catches_up else parts.role
    state = await blocks.state(job, plan)
    wanted = _tensors(job, parts, state)
    kept = [one.tensor.blob for one in wanted if one in state]
    await blocks.fetch(job, [one.tensor.blob for one in wanted if one not in state])
    await blocks.fetch_state(job, f"stage {index} as it began", plan.step, kept)
    arrays: Arrays = {}
    for part, tensor in ((one.part, one.tensor) for one in wanted):
        arrays[part, tensor.name] = await _array(job, tensor, blocks), tensor.dtype
    executor = await device.run(_build, job, parts, arrays, device.device, compiled=device.compiles)
    samples = Samples(
        job, blocks, train=_fields(train, parts.stage), evaluate=_fields(evaluate, parts.evaluation)
    )
    graphs: dict[Phase, Graph] = {"train": train, "evaluate": evaluate}
    return LoadedStage(
        job=job,
        plan=plan,
        role=role,
        graphs=graphs,
        stages=parts.stages,
        executor=executor,
        samples=samples,
    )


def _take_apart(job: Job, plan: Plan, index: StageIndex, graphs: tuple[Graph, Graph]) -> _Parts:
    """Cut both graphs as the plan says, and find the stage's role."""
    train, evaluate = graphs
    stages = cut_as_planned(plan, train)
    check_memory(plan, index, train, job.manifest.optimizer)
    evaluations = evaluation_stages(train, stages, evaluate)
    manifest = job.manifest
    held_out, evaluation_batches = manifest.held_out, 0
    if held_out is not None:
        evaluation_batches = held_out_batches(held_out.samples, manifest.micro_batch_size)
        evaluation_batches = min(evaluation_batches, MAX_MICRO_BATCHES - 1)  # and the spot check
    stage, evaluation = stages[index], evaluations[index]
    shared = tuple(
        parameter
        for parameter in shared_parameters(train, stages)
        if parameter.users and index in {parameter.owner, *parameter.users}
    )
    role = StageRole(
        job=job.id,
        stage=index,
        incarnations=tuple(Incarnation(planned.incarnation) for planned in plan.stages),
        depths=tuple(planned.depth for planned in plan.stages),
        passes=Passes(
            first_step=plan.step,
            steps=manifest.steps,
            evaluates=held_out is not None,
            validate_every=manifest.validate_every,
        ),
        micro_batches=manifest.micro_batches,
        evaluation_batches=evaluation_batches,
        validation_batches=min(manifest.validate_batches or evaluation_batches, evaluation_batches),
        train=Route(incoming=stage.incoming, outgoing=stage.outgoing),
        evaluate=Route(incoming=evaluation.incoming, outgoing=evaluation.outgoing),
        shared=shared,
        clip_norm=manifest.optimizer.clip_norm,
        quality=manifest.policy.quality,
        spot_checks=manifest.policy != NO_COMPRESSION and evaluation_batches > 0,
    )
    return _Parts(
        train=train,
        evaluate=evaluate,
        stages=tuple(stages),
        stage=stage,
        evaluation=evaluation,
        role=role,
        recompute=plan.stages[index].recompute,
    )


def _tensors(job: Job, parts: _Parts, state: frozenset[StateTensor]) -> list[StateTensor]:
    """The tensors that the stage begins with; that they are what its graphs want has been checked.

    Where ``state`` has nothing of a name, no stage changes that tensor, and it is the manifest's.
    """
    stages = ((parts.train, parts.stage), (parts.evaluate, parts.evaluation))
    names = dict.fromkeys(name for graph, stage in stages for name in tensor_names(graph, stage))
    values = {tensor.name: StateTensor("value", tensor) for tensor in job.manifest.tensors}
    values |= {one.tensor.name: one for one in state if one.part == "value"}
    owned = {parts.train.values[use.value].name for use in parts.stage.parameters if use.owned}
    more = [one for one in state if one.part != "value" and one.tensor.name in owned]
    return [*(values[name] for name in names), *more]


async def _array(job: Job, tensor: TensorBlob, blocks: JobBlocks) -> Array:
    store = blocks.exchange.store
    names = [Digest(name) for name in tensor.blob.blocks]
    return await blocks.exchange.obtain(names, lambda: get_tensor(store, tensor), sources=blocks.sources(job))


def _build(job: Job, parts: _Parts, arrays: Arrays, device: torch.device, *, compiled: bool) -> StageExecutor:
    """On the device thread."""
    task = StageTask(
        graph=parts.train,
        stage=parts.stage,
        evaluation=(parts.evaluate, parts.evaluation),
        optimizer=job.manifest.optimizer,
        micro_batches=job.manifest.micro_batches,
        seed=job.manifest.seed,
        recompute=parts.recompute,
        compiled=compiled,
    )
    tensors = {key: from_array(array, dtype) for key, (array, dtype) in arrays.items()}
    values = {name: tensor for (part, name), tensor in tensors.items() if part == "value"}
    try:
        executor = StageExecutor(task, values, device)
        executor.resume(tensors)
    except DeviceMemoryError as error:
        raise FailureError(f"{error}; give this peer less of {device} with --memory") from None
    return executor


def _fields(graph: Graph, stage: Stage) -> list[int]:
    """The positions of the model inputs that a stage reads."""
    positions = {value: position for position, value in enumerate(graph.inputs())}
    return [positions[value] for value in stage.inputs]
