"""What an author writes: a model, its loss, its data, an optimizer, and how long to train (section 5)."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, cast, get_args

import numpy as np
import torch
from msgspec import Struct
from torch import nn

from swarm.errors import MisuseError
from swarm.graph.cut import changing_tensors, trained_uses
from swarm.graph.dag import Graph
from swarm.ids import SHORT_ID_LENGTH
from swarm.train.authored import run_file
from swarm.train.capture import Loss, Metric, capture
from swarm.train.groups import check_used
from swarm.train.optimizer import SGD, Adam, AdamW, Optimizer, to_manifest
from swarm.train.samples import Samples, field_names, first_samples, prepare_samples, sample_count
from swarm.train.settings import check_number
from swarm.train.transforms import Draw, for_evaluation, in_order, micro_batch
from swarm.wire.codecs import parse_policy
from swarm.wire.limits import MAX_MICRO_BATCHES, MAX_STEPS
from swarm.wire.records import manifest
from swarm.wire.records.manifest import MAX_EXPORTERS, Precision
from swarm.wire.records.transforms import Transforms
from swarm.wire.tensors import DType

__all__ = ["CapturedJob", "TrainingJob", "capture_job", "load_job", "prepare_samples"]

MAX_MICRO_BATCH_SIZE: Final = 2**20
MAX_SEED: Final = 2**63 - 1
MAX_NAME_LENGTH: Final = 200
LONGEST_PATIENCE: Final = 1e9
"""The manifest's bounds."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TrainingJob:
    """One training run, as its author describes it. Raises MisuseError when made where it cannot be one."""

    model: nn.Module
    loss: Loss | None
    """Called with (outputs, target); returns a scalar tensor. None: the model returns the loss itself."""
    dataset: Samples
    """Samples (input, ..., target): a map-style dataset, or a tuple with one array for each field. Or with
    names, those of ``forward``'s arguments and the target's, which is ``labels`` or last: a dataset of
    mappings, or one mapping of arrays."""
    optimizer: Optimizer
    micro_batch_size: int
    """Samples that go through the model together."""
    micro_batches: int
    """Micro-batches in a step: one optimizer update has ``micro_batch_size * micro_batches`` samples."""
    steps: int
    """Optimizer updates in the run."""
    example_inputs: Sequence[torch.Tensor] | Mapping[str, torch.Tensor] | None = None
    """One batch, of any size, of the fields of a sample or all but the target; from the dataset if absent."""
    held_out: Samples | None = None
    """Samples never trained on, with the same fields; their loss is measured after the last step."""
    validate_every: int = 0
    """Steps after which the loss of held-out samples is measured while training goes on; 0: never."""
    validate_batches: int = 0
    """Held-out micro-batches, from the first on, that it is then measured over; 0: all."""
    metric: Metric | None = None
    """Called with (outputs, target) of held-out samples; returns a tensor with one number, of which the mean
    over the micro-batches is reported beside their loss."""
    seed: int = 0
    """Decides the order of samples and what dropout drops."""
    name: str = ""
    """For people; the class of the model where it is empty."""
    precision: Precision = "fp32"
    """``bf16``: operators run as under ``torch.autocast``; weights and optimizer state stay as they are."""
    patience: float = 0.0
    """Seconds that the job waits for enough peers before it fails; 0 waits for ever."""
    export_to: Sequence[str] = ()
    """PeerIds, in full, that may have the trained weights beside the author; empty: every member."""
    ema: float = 0.0
    """What an exponential average of the trained weights keeps of itself at each step, such as 0.999; 0: no
    average is kept. It is exported with ``swarm export --ema``; evaluation uses the weights themselves."""
    transforms: Mapping[int | str, Transforms] = field(default_factory=dict)
    """What samples go through before the model reads them, by the field's position or name. The random ones
    are for training alone, and drawn anew for each step and sample."""
    policy: str = "none"
    """How what stages send each other is compressed: ``none``; one codec for all (``int8``, ``topk:10%``);
    ``uniform:R`` or ``adatopk:R``, which make it R times smaller everywhere, or where it takes longest."""

    def __post_init__(self) -> None:
        self._check_types()
        _check_range("micro_batch_size", self.micro_batch_size, 1, MAX_MICRO_BATCH_SIZE)
        _check_range("micro_batches", self.micro_batches, 1, MAX_MICRO_BATCHES)
        _check_range("steps", self.steps, 1, MAX_STEPS)
        _check_range("seed", self.seed, 0, MAX_SEED)
        _check_patience(self.patience)
        _check_export_to(self.export_to)
        check_number("ema", self.ema, below=1.0)
        _check_policy(self.policy)
        samples, needed = sample_count(self.dataset), self.micro_batch_size * self.micro_batches
        if samples < needed:
            raise MisuseError(
                f"the dataset has {samples} samples, one step needs {needed} "
                f"({self.micro_batches} micro-batches of {self.micro_batch_size})"
            )
        if self.held_out is not None:
            held_out = sample_count(self.held_out, "held-out set")
            if held_out < self.micro_batch_size:
                raise MisuseError(
                    f"the held-out set has {held_out} samples, one micro-batch needs {self.micro_batch_size}"
                )
        self._check_validation()
        if not self.name:
            object.__setattr__(self, "name", type(self.model).__name__)

    def _check_validation(self) -> None:
        _check_range("validate_every", self.validate_every, 0, MAX_STEPS)
        _check_range("validate_batches", self.validate_batches, 0, MAX_MICRO_BATCHES)
        if self.validate_every and self.held_out is None:
            raise MisuseError("validate_every needs held-out samples: give held_out")
        if self.metric is not None and not callable(self.metric):
            raise MisuseError(
                f"the metric is of type {_kind(self.metric)}, and must be a function of (outputs, target)"
            )
        if isinstance(self.metric, nn.Module) and self.metric.state_dict():
            raise MisuseError(
                "the metric has tensors of its own, and must be a function of (outputs, target)"
            )
        if self.metric is not None and self.held_out is None:
            raise MisuseError("the metric is that of held-out samples: give held_out")
        if self.validate_batches and not self.validate_every:
            raise MisuseError("validate_batches bounds what validate_every measures: give that, too")

    def _check_types(self) -> None:
        if not isinstance(self.model, nn.Module):
            raise MisuseError(f"the model is of type {_kind(self.model)}, and must be an nn.Module")
        if self.loss is not None and not callable(self.loss):
            raise MisuseError(
                f"the loss is of type {_kind(self.loss)}, and must be a function of (outputs, target)"
            )
        if not isinstance(self.optimizer, SGD | Adam | AdamW):
            raise MisuseError(
                f"the optimizer is of type {_kind(self.optimizer)}, and must be SGD(...), Adam(...) or "
                "AdamW(...) of swarm.train.optimizer"
            )
        if self.precision not in get_args(Precision):
            raise MisuseError(f'precision is "fp32" or "bf16", and not {self.precision!r}')
        _check_name(self.name)

    def optimizer_spec(self) -> manifest.Optimizer:
        """The manifest's form of the optimizer and of the average that is kept of what it trains."""
        return to_manifest(self.optimizer, ema=self.ema)

    def transforms_in_order(self) -> tuple[Transforms, ...]:
        """The transforms of each field, or nothing without any; raises MisuseError as capture does."""
        if not self.transforms:
            return ()
        samples = first_samples(self.dataset, 1)
        kinds = [(cast("DType", items.dtype.name), items.shape[1:]) for items in samples]
        return in_order(self.transforms, field_names(self.dataset) or range(len(samples)), kinds)

    def autocast(self) -> torch.autocast:
        """The context in which the model and its loss run."""
        device = next((tensor.device.type for tensor in self.model.parameters()), "cpu")
        return torch.autocast(device, dtype=torch.bfloat16, enabled=self.precision == "bf16")


class CapturedJob(Struct, frozen=True, kw_only=True):
    """Both graphs of a job over one set of tensors.

    ``tensors`` holds the parameters, buffers and constants of both by name, in the author's own memory: copy
    before writing. ``state_dict`` is that of :class:`swarm.train.capture.Captured`.
    """

    train: Graph
    evaluate: Graph
    tensors: Mapping[str, torch.Tensor]
    state_dict: Mapping[str, str]

    def frozen(self) -> tuple[str, ...]:
        """The tensors of the ``state_dict`` that training leaves as they are, by name."""
        changing = changing_tensors(self.train)
        return tuple(name for name in dict.fromkeys(self.state_dict.values()) if name not in changing)


def capture_job(job: TrainingJob) -> CapturedJob:
    """The training and evaluation graphs of ``job`` for its micro-batch size; its model is left as it was.

    Raises CaptureError where the model cannot become a graph, MisuseError where example inputs or samples
    are not of the kind that they have to be, or a parameter group has no parameter.
    """
    fields = _micro_batch(job)
    _check_held_out(job, fields)
    names = field_names(job.dataset)
    examples = fields if names is None else dict(zip(names, fields, strict=True))
    with job.autocast():
        train = capture(job.model, examples, loss=job.loss, mode="train")
        evaluate = capture(job.model, examples, loss=job.loss, mode="evaluate", metric=job.metric)
    trained = [train.graph.values[parameter] for parameter in trained_uses(train.graph)]
    check_used(job.optimizer.groups, [(value.name, len(value.spec.shape)) for value in trained])
    return CapturedJob(
        train=train.graph,
        evaluate=evaluate.graph,
        tensors={**train.tensors, **evaluate.tensors},
        state_dict=train.state_dict,
    )


def load_job(path: Path) -> TrainingJob:
    """The ``job`` that the author's Python file at ``path`` makes.

    Raises MisuseError where there is no such file or job in it, FailureError where the file does not run; the
    line says what and where.
    """
    module = run_file(path)
    job = getattr(module, "job", None)
    if job is None:
        raise MisuseError(f"{path.name} has no job; write job = TrainingJob(...) at its top level")
    if not isinstance(job, TrainingJob):
        raise MisuseError(f"job in {path.name} is of type {_kind(job)}, and must be a TrainingJob")
    return job


def _micro_batch(job: TrainingJob) -> tuple[torch.Tensor, ...]:
    """One micro-batch of all fields: the example inputs, or the first samples, repeated to fill it."""
    first, size = first_samples(job.dataset, job.micro_batch_size), job.micro_batch_size
    draw = Draw(seed=job.seed, step=0, samples=np.arange(size))
    samples = [torch.from_numpy(items) for items in micro_batch(first, job.transforms_in_order(), draw)]
    examples = list(samples if job.example_inputs is None else _examples(job))
    if len(examples) == len(samples) - 1:
        examples.append(samples[-1])
    if len(examples) != len(samples):
        raise MisuseError(f"there are {len(examples)} example inputs for samples of {len(samples)} fields")
    return tuple(
        _rebatched(example, sample, position)
        for position, (example, sample) in enumerate(zip(examples, samples, strict=True))
    )


def _examples(job: TrainingJob) -> Sequence[torch.Tensor]:
    """The author's example inputs, in the order of the fields."""
    given, names = job.example_inputs or (), field_names(job.dataset)
    if not isinstance(given, Mapping):
        return given
    if names is None or not set(given) <= set(names):
        raise MisuseError(f"the example inputs {', '.join(given)} are not fields of the dataset's samples")
    return [given[name] for name in names if name in given]


def _check_held_out(job: TrainingJob, fields: Sequence[torch.Tensor]) -> None:
    if job.held_out is None:
        return
    if field_names(job.held_out, "held-out set") != field_names(job.dataset):
        raise MisuseError("the held-out set's samples have other fields than the dataset's")
    first, draw = first_samples(job.held_out, 1, "held-out set"), Draw(seed=0, step=0, samples=np.arange(1))
    transforms = for_evaluation(job.transforms_in_order())
    held_out = [torch.from_numpy(items) for items in micro_batch(first, transforms, draw)]
    kinds = [[(field.dtype, field.shape[1:]) for field in samples] for samples in (held_out, fields)]
    if kinds[0] != kinds[1]:
        shown = [" and ".join(f"{dtype} {list(shape)}" for dtype, shape in kind) for kind in kinds]
        raise MisuseError(f"the held-out set's samples have {shown[0]}, and the dataset's {shown[1]}")


def _rebatched(example: object, sample: torch.Tensor, position: int) -> torch.Tensor:
    """``example`` with as many items as ``sample`` has, and of the same kind."""
    if not isinstance(example, torch.Tensor) or example.dim() == 0 or len(example) == 0:
        raise MisuseError(f"example input {position} is not a batch; give a tensor with one item or more")
    if (example.dtype, example.shape[1:]) != (sample.dtype, sample.shape[1:]):
        raise MisuseError(
            f"example input {position} has items of {example.dtype} {list(example.shape[1:])}, and the "
            f"dataset of {sample.dtype} {list(sample.shape[1:])}"
        )
    return example.detach()[torch.arange(len(sample)) % len(example)]


def _check_range(name: str, value: object, least: int, most: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise MisuseError(f"{name} is a whole number from {least} to {most}, and not {value!r}")


def _check_patience(value: object) -> None:
    if not isinstance(value, int | float) or not 0 <= value <= LONGEST_PATIENCE:
        raise MisuseError(f"patience is a number of seconds, 0 or more, and not {value!r}")


def _check_export_to(peers: object) -> None:
    if not isinstance(peers, Sequence) or isinstance(peers, str) or len(peers) > MAX_EXPORTERS:
        raise MisuseError(f"export_to is a list of at most {MAX_EXPORTERS} PeerIds")
    for peer in peers:
        if not isinstance(peer, str) or re.fullmatch(rf"[a-z2-7]{{{SHORT_ID_LENGTH}}}", peer) is None:
            raise MisuseError(
                f"export_to has {peer!r}, which is no whole PeerId: swarm status --json shows them"
            )


def _check_policy(value: object) -> None:
    if not isinstance(value, str):
        raise MisuseError(f"policy is the name of one, such as 'none' or 'int8', and not {value!r}")
    parse_policy(value)


def _check_name(value: object) -> None:
    if not isinstance(value, str) or len(value) > MAX_NAME_LENGTH or not value.isprintable():
        raise MisuseError(f"name is one printable line of at most {MAX_NAME_LENGTH} characters")


def _kind(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
