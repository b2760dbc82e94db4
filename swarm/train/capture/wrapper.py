"""The module that is traced: the author's model with its loss around it, and an eye on its state."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import nn
from torch.utils import _pytree as pytree

from swarm.train.capture.calling import Loss, Metric, loss_and_outputs
from swarm.train.capture.places import LOSS_PATH, METRIC_PATH, Place, Refusal
from swarm.train.capture.watch import Watch, no_hidden_draws, plain_tensors


class _Slot(NamedTuple):
    """A tensor that a part of the model holds by name, with the number of writes it has seen."""

    path: str
    part: nn.Module
    name: str
    tensor: torch.Tensor
    writes: int

    @property
    def current(self) -> object:
        return getattr(self.part, self.name, None)


class ModelWithLoss(nn.Module):
    """What is traced: all fields of a micro-batch in, the loss and the model's outputs out.

    How the model is called is said in :func:`swarm.train.capture.calling.loss_and_outputs`. ``replaced`` has
    the names of plain attributes whose tensors the model replaced. A metric comes after the loss.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: Loss | None,
        names: Sequence[str] | None,
        metric: Metric | None = None,
    ) -> None:
        super().__init__()
        self.model = model
        self.loss = loss
        self.names = names
        self.metric = metric
        self.replaced: set[str] = set()

    def forward(self, *fields: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """The loss and the output tensors; buffers that the model replaced are written back in place."""
        buffers = self._slots(lambda part: list(part.named_buffers(recurse=False)))
        plain = self._slots(plain_tensors)
        with Watch(), no_hidden_draws():
            loss, outputs = loss_and_outputs(self.model, self.loss, fields, self.names)
            measured = [] if self.metric is None else [_number(self.metric(outputs, fields[-1]))]
            for slot in buffers:
                _write_back(slot)
        self._note_changes(plain)
        if not isinstance(loss, torch.Tensor):
            raise Refusal(
                "it is not a tensor; return the loss first, or give a loss function", Place(path=LOSS_PATH)
            )
        leaves = [leaf for leaf in pytree.tree_leaves(outputs) if isinstance(leaf, torch.Tensor)]
        return loss, [*measured, *leaves]

    def _slots(self, held_by: Callable[[nn.Module], list[tuple[str, torch.Tensor]]]) -> list[_Slot]:
        return [
            _Slot(path, part, name, tensor, _writes(tensor))
            for path, part in self.model.named_modules()
            for name, tensor in held_by(part)
        ]

    def _note_changes(self, plain: Sequence[_Slot]) -> None:
        for slot in plain:
            if _writes(slot.tensor) != slot.writes:
                raise changed_attribute(slot.path, slot.name)
            if slot.current is not slot.tensor:
                self.replaced.add(f"{slot.path}.{slot.name}" if slot.path else slot.name)


def _number(metric: object) -> torch.Tensor:
    """The metric as a floating number of its own, which is nothing else that the model returns."""
    if not isinstance(metric, torch.Tensor) or metric.dim():
        what = f"of shape {tuple(metric.shape)}" if isinstance(metric, torch.Tensor) else "no tensor"
        raise Refusal(
            f"it is {what}, and must be a tensor with one number; reduce it, as .float().mean() does",
            Place(path=METRIC_PATH),
        )
    return metric.clone() if metric.is_floating_point() else metric.to(torch.float32)


def changed_attribute(path: str, name: str) -> Refusal:
    """Why a model that changes a tensor outside of its buffers is refused."""
    return Refusal(
        f"the tensor {name} is kept in a plain attribute and changed by forward, so its state would be lost; "
        f'keep it with register_buffer("{name}", ...)',
        Place(path=path),
    )


def _write_back(slot: _Slot) -> None:
    """Make the replacement of a buffer by assignment the same as a write to it."""
    current, buffer = slot.current, slot.tensor
    if current is buffer:
        return
    if not isinstance(current, torch.Tensor) or (current.shape, current.dtype) != (
        buffer.shape,
        buffer.dtype,
    ):
        raise Refusal(
            f"its buffer {slot.name} is replaced by something of another shape or type; keep both fixed",
            Place(path=slot.path),
        )
    buffer.copy_(current)
    setattr(slot.part, slot.name, buffer)


def _writes(tensor: torch.Tensor) -> int:
    return tensor._version  # noqa: SLF001  torch's count of writes has no public name
