"""The buffers of a stage. What forward passes change is a copy of the step, adopted at its boundary (D10)."""

from collections.abc import Mapping

import torch

from swarm.graph.dag import Graph
from swarm.graph.stage import Stage
from swarm.ids import ValueId
from swarm.train.tensors import laid_out


class Buffers:
    """The buffers that one stage holds, on its device."""

    def __init__(
        self, graph: Graph, stage: Stage, tensors: Mapping[str, torch.Tensor], device: torch.device
    ) -> None:
        self._updates = stage.updates
        self.tensors: dict[ValueId, torch.Tensor] = {
            use.value: laid_out(tensors[graph.values[use.value].name], graph.values[use.value], device)
            for use in stage.buffers
        }
        self._changed: dict[ValueId, torch.Tensor] = {}

    def current(self) -> dict[ValueId, torch.Tensor]:
        """What the next micro-batch of this step reads."""
        return self.tensors | self._changed

    def change(self, values: Mapping[ValueId, torch.Tensor]) -> None:
        """Take the new values that a forward pass left in ``values``; the next micro-batch reads them."""
        for update in self._updates:
            self._changed[ValueId(update.buffer)] = values[ValueId(update.value)].detach()

    def adopt(self) -> None:
        """Make the changed buffers the stage's own: the step is applied."""
        own = {tensor.untyped_storage().data_ptr() for tensor in self.tensors.values()}
        adopted = {
            buffer: tensor.clone() if tensor.untyped_storage().data_ptr() in own else tensor
            for buffer, tensor in self._changed.items()
        }
        for buffer, tensor in adopted.items():
            self.tensors[buffer].copy_(tensor)
        self._changed.clear()

    def forget(self) -> None:
        """Drop what the step changed."""
        self._changed.clear()
