"""``--verify``: what the swarm trained against both contracts of decision D5.

Against PyTorch: the author's module, trained by ``torch.optim`` alone; losses may differ by rounding. Against
ourselves: our executor with all operators in one stage; nothing may differ by a single bit.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file

from swarm.data.sampler import held_out_batches, held_out_indices, indices
from swarm.data.tensors import Array
from swarm.errors import FailureError
from swarm.graph.dag import Graph
from swarm.protocol.settlement import Validation
from swarm.services.training.arrays import to_array
from swarm.services.training.author import PreparedJob
from swarm.train.lockstep import Batch, LockstepJob, LockstepRun, run_lockstep
from swarm.train.reference import Batches, train_eagerly
from swarm.train.transforms import Draw, for_evaluation
from swarm.train.transforms import micro_batch as fields_of

TOLERANCE: Final = 1e-5
"""Largest relative difference of a loss from PyTorch's (decision D5)."""

TOLERANCE_BF16: Final = 1e-2
"""The same where both round to bfloat16, which has three digits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """What came out of the swarm."""

    losses: Sequence[float]
    validations: Sequence[Validation]
    weights: Path
    """Exported as safetensors, under the author's names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """Both comparisons."""

    difference: float
    """Largest relative difference of a step's loss from PyTorch's."""
    worst_step: int
    """Where that was."""
    tolerance: float
    """What that may be at the job's precision."""
    identical: bool
    """Whether every loss, those of held-out samples and every weight have the bits of the one-stage run."""

    @property
    def good(self) -> bool:
        """Whether both contracts hold."""
        return self.difference <= self.tolerance and self.identical


def verify(
    prepared: PreparedJob, trained: Trained, device: torch.device, *, cancelled: Callable[[], bool]
) -> Verification:
    """Train the same job twice without the swarm, and compare. Takes twice the computing of the job.

    To be called on the device thread. Raises FailureError once ``cancelled`` says so.
    """
    own_job = lockstep_job(prepared, cancelled=cancelled)
    eager = train_eagerly(prepared.job, prepared.samples, batches=_sampler(prepared, cancelled))
    own = run_lockstep(own_job, device)
    differences = [
        abs(ours - theirs) / max(abs(theirs), 1e-30)
        for ours, theirs in zip(trained.losses, eager.losses, strict=True)
    ]
    worst = int(np.argmax(differences))
    return Verification(
        difference=differences[worst],
        worst_step=worst,
        tolerance=TOLERANCE_BF16 if prepared.job.precision == "bf16" else TOLERANCE,
        identical=_is_identical(prepared, trained, own),
    )


def lockstep_job(prepared: PreparedJob, *, cancelled: Callable[[], bool]) -> LockstepJob:
    """``prepared`` for one process, on the same samples as in the swarm.

    Its batches raise FailureError once ``cancelled`` says so.
    """
    job, captured, held_out = prepared.job, prepared.captured, prepared.held_out
    chosen, transforms = _sampler(prepared, cancelled), job.transforms_in_order()

    def batch(step: int, micro_batch: int) -> Batch:
        draw = Draw(seed=job.seed, step=step, samples=chosen(step, micro_batch))
        return _batch(captured.train, fields_of(prepared.samples, transforms, draw))

    def held_out_batch(micro_batch: int) -> Batch:
        which = held_out_indices(micro_batch, job.micro_batch_size)
        draw = Draw(seed=job.seed, step=0, samples=which)
        return _batch(captured.evaluate, fields_of(held_out or (), for_evaluation(transforms), draw))

    batches = 0 if held_out is None else held_out_batches(len(held_out[0]), job.micro_batch_size)
    return LockstepJob(
        graph=captured.train,
        evaluation=captured.evaluate,
        tensors={name: tensor.detach().clone() for name, tensor in captured.tensors.items()},
        optimizer=job.optimizer_spec(),
        micro_batches=job.micro_batches,
        steps=job.steps,
        seed=job.seed,
        batch=batch,
        held_out=None if held_out is None else held_out_batch,
        held_out_batches=batches,
        validate_every=job.validate_every,
        validation_batches=min(job.validate_batches or batches, batches),
    )


def _sampler(prepared: PreparedJob, cancelled: Callable[[], bool]) -> Batches:
    """The samples of (step, micro-batch); each look also asks whether to go on."""
    job = prepared.job

    def chosen(step: int, micro_batch: int) -> NDArray[np.int64]:
        if cancelled():
            raise FailureError("the comparison was interrupted")
        return indices(
            len(prepared.samples[0]),
            seed=job.seed,
            step=step,
            micro_batch=micro_batch,
            micro_batch_size=job.micro_batch_size,
            micro_batches=job.micro_batches,
        )

    return chosen


def _batch(graph: Graph, items: Sequence[Array]) -> Batch:
    return {value: torch.from_numpy(field) for value, field in zip(graph.inputs(), items, strict=True)}


def _is_identical(prepared: PreparedJob, trained: Trained, own: LockstepRun) -> bool:
    weights: Mapping[str, torch.Tensor] = load_file(trained.weights)
    return (
        tuple(trained.losses) == own.losses
        and tuple(trained.validations) == own.validations
        and all(
            _bits(weights[key]) == _bits(own.tensors[name])
            for key, name in prepared.captured.state_dict.items()
        )
    )


def _bits(tensor: torch.Tensor) -> bytes:
    array, dtype = to_array(tensor)
    return dtype.encode() + str(array.shape).encode() + array.tobytes()
