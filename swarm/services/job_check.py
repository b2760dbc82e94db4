"""Whether the parts of a job fit each other: manifest, graphs, dataset, optimizer and plan.

Each of them is well formed by itself once it is decoded; that they belong together is only their author's
word. All is checked where it is learnt, before anything is made of it, and in one place. Every function here
raises RemoteProtocolError with one sentence, and nothing else.
"""

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from swarm.data.checks import check_dataset, check_tensor
from swarm.errors import LocalError, RemoteProtocolError
from swarm.graph.cut import changing_tensors, cut
from swarm.graph.dag import TENSOR_KINDS, Graph
from swarm.graph.stage import Stage
from swarm.ids import StageIndex
from swarm.schedule.units import format_bytes
from swarm.wire.limits import MAX_BLOCK_BYTES, MAX_GRAPH_BYTES
from swarm.wire.records.blobs import Blob, TensorBlob
from swarm.wire.records.manifest import (
    AVERAGES,
    Dataset,
    Manifest,
    Optimizer,
    averaged,
    blobs_of,
)
from swarm.wire.records.plan import Plan
from swarm.wire.records.state import JobSnapshot
from swarm.wire.records.transforms import transformed_kind
from swarm.wire.text import MAX_NAME_LENGTH

Kind = tuple[str, tuple[int, ...]]
"""Data type and shape."""

_COUNT: Final = ("float32", (), 4, 1)
"""Type, shape, bytes and blocks of an optimizer's count of steps."""

_SHOWN: Final = 200
"""Characters of a stranger's name in one of these sentences."""


def check_manifest(manifest: Manifest) -> None:
    """Everything that a manifest alone can be judged by."""
    for blob in blobs_of(manifest):
        _check_blob(blob)
    for graph in (manifest.graph, manifest.evaluation):
        _demand(graph.size <= MAX_GRAPH_BYTES, f"a graph of {graph.size} bytes is over the limit")
    _check_optimizer(manifest.optimizer)
    _check_samples(manifest)
    for tensor in manifest.tensors:
        check_tensor(tensor)
    names = {tensor.name for tensor in manifest.tensors}
    if manifest.optimizer.ema > 0:
        taken = [name for name in names if name.startswith(AVERAGES) or len(averaged(name)) > MAX_NAME_LENGTH]
        _demand(not taken, "one of its names leaves none for an average")
    _demand(len(names) == len(manifest.tensors), "it has two tensors of one name")
    keys = {key for key, _ in manifest.state}
    _demand(len(keys) == len(manifest.state), "its state_dict has a key twice")
    unknown = [name for _, name in manifest.state if name not in names]
    _demand(not unknown, f"its state_dict has {unknown[0][:_SHOWN] if unknown else ''}, which is no tensor")
    stray = set(manifest.frozen) - {name for _, name in manifest.state}
    _demand(not stray, f"{min(stray, default='')[:_SHOWN]} is frozen, and not in its state_dict")


def check_graphs(manifest: Manifest, train: Graph, evaluate: Graph) -> None:
    """Whether both graphs are of this job: its samples go in, its tensors are there, a loss comes out."""
    tensors: dict[str, Kind] = {tensor.name: (tensor.dtype, tensor.shape) for tensor in manifest.tensors}
    fields = [(dtype, (manifest.micro_batch_size, *shape)) for dtype, shape in _read(manifest.dataset)]
    for graph, mode in ((train, "train"), (evaluate, "evaluate")):
        _demand(graph.mode == mode, f"its {mode} graph is for another mode")
        _demand(graph.values[graph.loss].kind == "output", f"no operator of its {mode} graph makes the loss")
        specs = [graph.values[value].spec for value in graph.inputs()]
        inputs: list[Kind] = [(spec.dtype, spec.shape) for spec in specs]
        _demand(
            inputs == fields, f"its samples are {_shown(fields)}, and its {mode} graph takes {_shown(inputs)}"
        )
        for value in graph.values:
            if value.kind in TENSOR_KINDS:
                known = tensors.get(value.name) == (value.spec.dtype, value.spec.shape)
                _demand(known, f"it has no tensor {value.name[:_SHOWN]} of the {mode} graph's type and shape")
    changed = changing_tensors(train) & set(manifest.frozen)
    _demand(not changed, f"{min(changed, default='')[:_SHOWN]} is frozen, and training changes it")


def check_weights(weights: Sequence[TensorBlob], manifest: Manifest) -> None:
    """Whether trained weights are of this job: all that its state_dict has, each as large as it was."""
    initial = {tensor.name: _size(tensor) for tensor in manifest.tensors}
    averages = manifest.optimizer.ema > 0
    if averages:
        initial |= {averaged(name): size for name, size in initial.items()}
    found = {tensor.name: _size(tensor) for tensor in weights}
    _demand(len(found) == len(weights), "it returned two tensors of one name", of="result")
    for name, size in found.items():
        _demand(initial.get(name) == size, f"{name[:_SHOWN]} is not as it was", of="result")
    missing = [name for _, name in manifest.state if name not in found]
    _demand(not missing, f"it lacks {missing[0][:_SHOWN] if missing else ''}", of="result")
    _demand(
        not averages or any(name.startswith(AVERAGES) for name in found), "it lacks the averages", of="result"
    )


def check_state(state: JobSnapshot, step: int, manifest: Manifest) -> None:
    """Whether a job's state after ``step`` steps has its tensors alone, each as large as it must be."""
    initial = {tensor.name: _size(tensor) for tensor in manifest.tensors}
    parts = {(one.part, one.tensor.name) for one in state.tensors}
    _demand(state.step == step, f"it is of step {state.step}, and not {step}", of="state")
    _demand(len(parts) == len(state.tensors), "it has a tensor twice", of="state")
    for part, tensor in ((one.part, one.tensor) for one in state.tensors):
        check_tensor(tensor)
        wanted = _COUNT if part == "step" else initial.get(tensor.name)
        known = tensor.name in initial and _size(tensor) == wanted
        _demand(known, f"{tensor.name[:_SHOWN]} is not as it was", of="state")


def average_of(tensor: TensorBlob) -> TensorBlob:
    """What stands for the average of the trained parameter ``tensor``: as large, under its own name."""
    return replace(tensor, name=averaged(tensor.name))


def check_plan(plan: Plan, manifest: Manifest) -> None:
    """Everything that a plan can be judged by without the graph: its stages follow each other."""
    steps, stages = manifest.steps, plan.stages
    _demand(plan.step < steps, f"the plan begins at step {plan.step} of {steps}", of="plan")
    at, depth = 0, max(len(stages), manifest.micro_batches)
    for number, stage in enumerate(stages, start=1):
        _demand(at == stage.first < stage.last, f"stage {number} does not follow the one before", of="plan")
        _demand(stage.depth <= depth, f"stage {number} holds more micro-batches than it may", of="plan")
        at, depth = stage.last, stage.depth


def moved_stage(plan: Plan, proposed: Plan) -> StageIndex:
    """The one stage that ``proposed`` gives to another holder than ``plan``; all else is to be the same."""
    moved = [
        index
        for index, (old, new) in enumerate(zip(plan.stages, proposed.stages, strict=False))
        if old.holder != new.holder
    ]
    _demand(
        len(moved) == 1 and len(plan.stages) == len(proposed.stages), "it does not move one stage", of="plan"
    )
    old, new = plan.stages[moved[0]], proposed.stages[moved[0]]
    same = [*plan.stages]
    same[moved[0]] = replace(old, holder=new.holder, incarnation=new.incarnation, seconds=new.seconds)
    unlike = [
        n
        for n, (a, b) in enumerate(zip(same, proposed.stages, strict=True), 1)
        if replace(a, codec=b.codec) != b
    ]
    _demand(not unlike, f"it changes stage {unlike[0] if unlike else 0} while its job trains", of="plan")
    _demand(new.incarnation > old.incarnation, "a stage changes hands in the incarnation it has", of="plan")
    return StageIndex(moved[0])


def cut_as_planned(plan: Plan, graph: Graph) -> tuple[Stage, ...]:
    """The stages of the training graph that ``plan`` says, where it fits the graph."""
    try:
        return cut(graph, [0, *(stage.last for stage in plan.stages)])
    except LocalError as error:
        raise RemoteProtocolError(f"the plan does not fit the job's graph: {error}") from None


def check_memory(plan: Plan, index: int, graph: Graph, optimizer: Optimizer) -> None:
    """Whether the plan counts for stage ``index`` what it needs: a holder gives no more than that."""
    from swarm.schedule.cost import graph_costs  # noqa: PLC0415 - imports numpy, and only holders look
    from swarm.schedule.memory import MemoryModel  # noqa: PLC0415

    stage = plan.stages[index]
    needed = MemoryModel(graph, graph_costs(graph), optimizer).stage_bytes(
        stage.first, stage.last, stage.depth, recompute=stage.recompute
    )
    counted, needs = format_bytes(stage.memory), format_bytes(needed)
    _demand(needed <= stage.memory, f"it counts {counted} for a stage that needs {needs}", of="plan")


def _check_blob(blob: Blob) -> None:
    blocks = len(blob.blocks)
    fits = blocks == 0 if blob.size == 0 else blocks <= blob.size <= blocks * MAX_BLOCK_BYTES
    _demand(fits, f"{blob.size} bytes cannot be in {blocks} blocks")


def _check_optimizer(optimizer: Optimizer) -> None:
    """The bounds of torch's optimizers, which ``swarm.train.optimizer`` holds authors to."""
    if optimizer.kind in {"adam", "adamw"}:
        _demand(max(optimizer.betas) < 1.0, "betas must be below 1")
    elif optimizer.nesterov:
        sound = optimizer.momentum > 0 and optimizer.dampening == 0
        _demand(sound, "nesterov needs a momentum and no dampening")


def _check_samples(manifest: Manifest) -> None:
    dataset, held_out = manifest.dataset, manifest.held_out
    check_dataset(dataset)
    _read(dataset)
    needed = manifest.micro_batch_size * manifest.micro_batches
    _demand(needed <= dataset.samples, f"one step needs {needed} samples of {dataset.samples}")
    if held_out is not None:
        check_dataset(held_out)
        same = _read(held_out) == _read(dataset)
        _demand(same, "its held-out samples are of another kind than the others")
        enough = held_out.samples >= manifest.micro_batch_size
        _demand(enough, "its held-out samples do not fill a micro-batch")
    validates = manifest.validate_every > 0
    _demand(not validates or held_out is not None, "it validates, and has no held-out samples")


def _size(tensor: TensorBlob) -> tuple[str, tuple[int, ...], int, int]:
    return tensor.dtype, tensor.shape, tensor.blob.size, len(tensor.blob.blocks)


def _read(dataset: Dataset) -> list[Kind]:
    """What a model reads of one sample: each field after its transforms, which have to fit it."""
    kinds: list[Kind] = [(field.dtype, field.shape) for field in dataset.fields]
    if not dataset.transforms:
        return kinds
    _demand(len(dataset.transforms) == len(kinds), "its transforms are not those of its fields")
    try:
        return [
            transformed_kind((field.dtype, field.shape), transforms)
            for field, transforms in zip(dataset.fields, dataset.transforms, strict=True)
        ]
    except ValueError as error:
        raise RemoteProtocolError(f"the job does not fit together: {error}"[:_SHOWN]) from None


def _shown(kinds: list[Kind]) -> str:
    return str(kinds)[:_SHOWN]


def _demand(holds: bool, otherwise: str, *, of: str = "job") -> None:
    if not holds:
        raise RemoteProtocolError(f"the {of} does not fit together: {otherwise}")
