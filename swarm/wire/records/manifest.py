"""The manifest: the signed description of a training run, whose hash is the job id (DESIGN section 2)."""

from typing import Annotated, Final, Literal

from msgspec import Meta, Struct

from swarm.wire.codecs import NO_COMPRESSION, Policy
from swarm.wire.limits import MAX_MICRO_BATCHES, MAX_SAMPLES, MAX_STEPS
from swarm.wire.messages.base import LongId, ShortId
from swarm.wire.numbers import Fraction, Positive, Real, WallTime
from swarm.wire.records.blobs import Blob, TensorBlob
from swarm.wire.records.transforms import Transforms
from swarm.wire.tensors import DType, Sizes
from swarm.wire.text import Name

MAX_EXPORTERS: Final = 64
"""Peers that a manifest may name as those who may have its weights."""

AVERAGES: Final = "(ema)."
"""Before the names of averages of parameters; no tensor of a job that has them is named so."""

Precision = Literal["fp32", "bf16"]
"""``bf16``: the graphs were captured under ``torch.autocast``, so that they round where it does."""


class Schedule(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, kw_only=True):
    """Learning-rate factor by step: linear warm-up over ``warmup`` steps, then ``kind`` down to ``floor``.

    ``step`` multiplies by ``factor`` after each ``every`` steps; those two are at their defaults elsewhere.
    """

    kind: Literal["constant", "linear", "cosine", "step", "inverse_sqrt"]
    warmup: Annotated[int, Meta(ge=0, le=MAX_STEPS)]
    floor: Fraction
    every: Annotated[int, Meta(ge=1, le=MAX_STEPS)] = 1
    factor: Fraction = 1.0


class Group(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, kw_only=True):
    """Settings for trained parameters of at most so many dimensions whose name fits a shell pattern.

    The first group that fits counts.
    """

    names: Annotated[tuple[Name, ...], Meta(min_length=1, max_length=16)]
    most_dimensions: Annotated[int, Meta(ge=0, le=64)]
    weight_decay: Positive | None
    """In place of the optimizer's."""
    lr_scale: Positive


class Optimizer(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, kw_only=True):
    """The optimizer with torch's meaning of each field; those of the other kind are at their defaults."""

    kind: Literal["sgd", "adam", "adamw"]
    lr: Positive
    schedule: Schedule
    weight_decay: Positive = 0.0
    momentum: Positive = 0.0
    dampening: Real = 0.0
    nesterov: bool = False
    betas: tuple[Positive, Positive] = (0.9, 0.999)
    eps: Positive = 1e-8
    clip_norm: Positive = 0.0
    """Largest global gradient norm; 0 does not clip."""
    groups: Annotated[tuple[Group, ...], Meta(max_length=16)] = ()
    ema: Annotated[float, Meta(ge=0, lt=1)] = 0.0
    """What an average of the trained parameters keeps of itself at each step; 0: there is none."""


class Field(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One field of every sample: type and shape of an item, and the items back to back as a blob.

    ``per_block`` items share a block; an item is never split.
    """

    dtype: DType
    shape: Sizes
    per_block: Annotated[int, Meta(ge=1)]
    blob: Blob


class Dataset(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Samples: as many as each field has items. Fields are the graph's inputs in order.

    ``transforms`` are those of each field, where any has some.
    """

    samples: Annotated[int, Meta(ge=1, le=MAX_SAMPLES)]
    fields: Annotated[tuple[Field, ...], Meta(min_length=1, max_length=64)]
    transforms: Annotated[tuple[Transforms, ...], Meta(max_length=64)] = ()


class Manifest(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, kw_only=True):
    """One training run."""

    format: Literal[1]
    swarm: ShortId
    name: Name
    created: WallTime
    """Wall time, seconds since 1970 UTC; makes two runs of one model two jobs."""
    graph: Blob
    """The training graph (``swarm.graph.dag``), zstandard-compressed."""
    evaluation: Blob
    """The evaluation graph over the same parameters."""
    tensors: Annotated[tuple[TensorBlob, ...], Meta(max_length=100_000)]
    """Initial parameters, buffers and constants, by the names that the graphs use."""
    state: Annotated[tuple[tuple[Name, Name], ...], Meta(max_length=100_000)]
    """The keys of the author's ``state_dict()``, each with the name of its tensor; tied ones share a name."""
    dataset: Dataset
    held_out: Dataset | None
    """Samples never trained on; their loss is measured after the last step (and see ``validate_every``)."""
    optimizer: Optimizer
    micro_batch_size: Annotated[int, Meta(ge=1, le=2**20)]
    micro_batches: Annotated[int, Meta(ge=1, le=MAX_MICRO_BATCHES)]
    steps: Annotated[int, Meta(ge=1, le=MAX_STEPS)]
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)]
    tokens_per_sample: Annotated[int, Meta(ge=1, le=2**40)]
    """What tokens a second counts: elements of the target per sample, 1 for one label per sample."""
    council: Annotated[tuple[ShortId, ...], Meta(min_length=1, max_length=5)]
    """The peers that coordinate the job; the first one does, until there is a council."""
    patience: Annotated[float, Meta(ge=0, le=1e9)]
    """Seconds that the job waits for enough peers before it fails; 0 waits for ever."""
    frozen: Annotated[tuple[Name, ...], Meta(max_length=100_000)] = ()
    """Tensors in ``state`` that training leaves as they are, by name."""
    export_to: Annotated[tuple[ShortId, ...], Meta(max_length=MAX_EXPORTERS)] = ()
    """The peers that may have the trained weights, beside the author and the council; none: every member."""
    policy: Policy = NO_COMPRESSION
    """How the codec of each boundary is chosen."""
    precision: Precision = "fp32"
    validate_every: Annotated[int, Meta(ge=0, le=MAX_STEPS)] = 0
    """Steps after which the held-out loss is measured while training goes on; 0: only after the last one."""
    validate_batches: Annotated[int, Meta(ge=0, le=MAX_MICRO_BATCHES)] = 0
    """Held-out micro-batches, from the first on, that it is then measured over; 0: all."""


class Cancellation(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, kw_only=True):
    """The wish to end a job, signed by its author or a member with ``organise``."""

    job: LongId
    wall: WallTime


def averaged(name: str) -> str:
    """The name under which the average of the trained parameter ``name`` is returned and kept."""
    return f"{AVERAGES}{name}"


def blobs_of(manifest: Manifest) -> tuple[Blob, ...]:
    """Every blob that the job needs: graphs, initial tensors, samples."""
    datasets = [manifest.dataset, *([manifest.held_out] if manifest.held_out is not None else [])]
    return (
        manifest.graph,
        manifest.evaluation,
        *(tensor.blob for tensor in manifest.tensors),
        *(field.blob for dataset in datasets for field in dataset.fields),
    )
