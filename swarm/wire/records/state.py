"""The state of a job at a step boundary, as tensors in blocks: what snapshots of stages hold (decision D10).

It knows no stages: whoever is given operators in another plan finds their tensors by name.
"""

from typing import Annotated, Final, Literal

from msgspec import Meta, Struct

from swarm.wire.records.blobs import TensorBlob

StatePart = Literal["value", "average", "step", "exp_avg", "exp_avg_sq", "momentum_buffer"]
"""Of a parameter or buffer the value; of a trained parameter also its average, and what the optimizer keeps
of it, under torch's names."""

OPTIMIZER_PARTS: Final[tuple[StatePart, ...]] = ("step", "exp_avg", "exp_avg_sq", "momentum_buffer")

MAX_STATE_TENSORS: Final = 500_000
"""Tensors of one job's state: five of each of 100,000 parameters."""


class StateTensor(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One tensor of the state, named as the parameter or buffer that it belongs to."""

    part: StatePart
    tensor: TensorBlob


class JobSnapshot(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, kw_only=True):
    """All of a job's state after ``step`` steps; a plan that begins there names the blob that has it."""

    format: Literal[1]
    step: Annotated[int, Meta(ge=0, le=2**31)]
    tensors: Annotated[tuple[StateTensor, ...], Meta(max_length=MAX_STATE_TENSORS)]
