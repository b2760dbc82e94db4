"""The parameters of a stage: their uses, the gradients of a step, and the optimizer (decision D5).

Every operator that uses a trained parameter reads a leaf of its own, an alias of the parameter. So each use
has its own gradient, added up over the micro-batches in index order. At the step boundary the owner adds the
uses in operator order, wherever they were computed.
"""

from collections.abc import Mapping

import torch
from torch import nn

from swarm.compress.layout import in_float64
from swarm.errors import LocalError
from swarm.graph.cut import is_trained, trained_uses
from swarm.graph.dag import Graph
from swarm.graph.stage import Stage
from swarm.ids import OperatorIndex, ValueId
from swarm.train.optimizer import build, set_learning_rate
from swarm.train.tensors import laid_out
from swarm.wire.messages.pipeline import Square
from swarm.wire.records.manifest import Optimizer
from swarm.wire.records.state import OPTIMIZER_PARTS, StatePart

_CHUNK = 2**16
"""Elements whose squares are summed at a time, so that float64 copies stay small."""

Use = tuple[ValueId, OperatorIndex]


class Parameters:
    """The parameters that one stage holds, on its device."""

    def __init__(
        self,
        graph: Graph,
        stage: Stage,
        tensors: Mapping[str, torch.Tensor],
        optimizer: Optimizer,
        device: torch.device,
    ) -> None:
        self._graph = graph
        self.tensors: dict[ValueId, torch.Tensor] = {}
        self.bound: dict[OperatorIndex, dict[ValueId, torch.Tensor]] = {}
        """What each operator reads: its own leaf of a trained parameter, else the parameter."""
        self._leaves: dict[Use, torch.Tensor] = {}
        self._gradients: dict[Use, torch.Tensor] = {}
        self._totals: dict[ValueId, torch.Tensor] = {}
        self._sums: set[Use] = set()
        """Uses whose gradient was added up here; the others, others may read, too."""
        uses = trained_uses(graph)
        for use in stage.parameters:
            value = graph.values[use.value]
            parameter = nn.Parameter(laid_out(tensors[value.name], value, device), requires_grad=False)
            self.tensors[use.value] = parameter
            for operator in use.operators:
                tensor = parameter.detach()
                if use.value in uses and is_trained(graph, operator):
                    self._leaves[use.value, operator] = tensor.requires_grad_()
                self.bound.setdefault(operator, {})[use.value] = tensor
        self._uses = {
            use.value: uses[use.value] for use in stage.parameters if use.owned and use.value in uses
        }
        owned = [(graph.values[parameter].name, self.tensors[parameter]) for parameter in self._uses]
        self._optimizer = build(optimizer, owned) if owned else None
        self._ema = optimizer.ema
        self.averages: dict[ValueId, torch.Tensor] = {}
        """Of the owned trained parameters, where the job keeps them and a step has been applied."""

    # During a step.

    def leaves(self) -> list[torch.Tensor]:
        """What gradients are wanted for, in an order that :meth:`accumulate` knows."""
        return list(self._leaves.values())

    def accumulate(self, gradients: list[torch.Tensor | None]) -> None:
        """Add one micro-batch's gradients of :meth:`leaves`; micro-batches come in index order.

        Each is taken out of the list once it is added, so that after an error the rest can be added later.
        """
        for place, use in enumerate(self._leaves):
            gradient = gradients[place]
            if gradient is None:
                continue
            if use in self._sums:
                self._gradients[use].add_(gradient)
            elif use in self._gradients:
                self._gradients[use] = self._gradients[use] + gradient
                self._sums.add(use)
            else:
                self._gradients[use] = gradient if _is_alone(gradient) else _copy(gradient)
            gradients[place] = None

    def gradient_of_use(self, parameter: ValueId, operator: OperatorIndex) -> torch.Tensor:
        """The sum over the micro-batches of one use's gradient.

        Zeros where no gradient came through it. Raises LocalError for an operator that is not a trained use
        in this stage.
        """
        if (parameter, operator) not in self._leaves:
            raise LocalError(f"operator {operator} does not train parameter {parameter} in this stage")
        found = self._gradients.get((parameter, operator))
        return torch.zeros_like(self.tensors[parameter]) if found is None else found

    # At the step boundary.

    def measure(self, shared: Mapping[Use, torch.Tensor]) -> tuple[Square, ...]:
        """Complete the gradients of all owned parameters and give their sums of squares, in parameter order.

        ``shared`` has the gradients of uses in other stages. Raises LocalError where one is missing.
        """
        for parameter, operators in self._uses.items():
            parts = [self._part(parameter, operator, shared) for operator in operators]
            total = parts[0] if len(parts) == 1 else _copy(parts[0])
            for part in parts[1:]:
                total.add_(part)
            self._totals[parameter] = total
        measured = sorted(self._totals.items())
        squares = [sum_of_squares(total) for _, total in measured]
        numbers = torch.stack(squares).tolist() if squares else []  # one wait for the device
        return tuple(
            Square(parameter=parameter, total=number)
            for (parameter, _), number in zip(measured, numbers, strict=True)
        )

    def _part(
        self, parameter: ValueId, operator: OperatorIndex, shared: Mapping[Use, torch.Tensor]
    ) -> torch.Tensor:
        if (parameter, operator) in self._leaves:
            return self.gradient_of_use(parameter, operator)
        if (parameter, operator) not in shared:
            name = self._graph.values[parameter].name
            raise LocalError(f"the gradient of {name} from operator {operator} has not come")
        return shared[parameter, operator]

    def step(self, clip: float, learning_rate: float) -> None:
        """Scale the measured gradients by ``clip`` and let the optimizer step."""
        if len(self._totals) != len(self._uses):
            raise LocalError("the optimizer is to step before the gradients are measured")
        if self._optimizer is not None:
            set_learning_rate(self._optimizer, learning_rate)
            with torch.no_grad():
                self._gradients.clear()
                for parameter in self._uses:
                    self.tensors[parameter].grad = _scaled(self._totals.pop(parameter), clip)
                self._optimizer.step()
            for parameter in self._uses:
                self.tensors[parameter].grad = None
            if self._ema > 0:
                self._average()
        self.forget()

    def _average(self) -> None:
        """Take the step's parameters into their averages, which begin with those of the first step.

        As ``torch.optim.swa_utils.AveragedModel`` does with ``get_ema_multi_avg_fn``.
        """
        for parameter in self._uses:
            tensor = self.tensors[parameter].detach()
            if parameter in self.averages:
                self.averages[parameter].lerp_(tensor, 1 - self._ema)
            else:
                self.averages[parameter] = tensor.clone(memory_format=torch.preserve_format)

    # Between steps.

    def state(self) -> dict[tuple[StatePart, ValueId], torch.Tensor]:
        """What else the owned trained parameters have: averages, and what the optimizer keeps of each.

        The tensors themselves, which the next step changes.
        """
        found: dict[tuple[StatePart, ValueId], torch.Tensor] = {
            ("average", parameter): tensor for parameter, tensor in self.averages.items()
        }
        if self._optimizer is not None:
            for parameter in self._uses:
                kept = self._optimizer.state.get(self.tensors[parameter], {})
                for part in OPTIMIZER_PARTS:
                    if kept.get(part) is not None:
                        found[part, parameter] = kept[part]
        return found

    def resume(self, state: Mapping[tuple[StatePart, ValueId], torch.Tensor]) -> None:
        """Go on from what :meth:`state` gave, perhaps of another stage's executor, in tensors of its own."""
        for (part, parameter), tensor in state.items():
            owned = self.tensors[parameter]
            if part == "average":
                self.averages[parameter] = torch.empty_like(owned).copy_(tensor)
            elif self._optimizer is not None:
                # As torch keeps it: a count on the CPU, everything else as the parameter.
                kept = tensor.clone() if part == "step" else torch.empty_like(owned).copy_(tensor)
                self._optimizer.state[owned][part] = kept

    def forget(self) -> None:
        """Drop the gradients of the step."""
        self._gradients.clear()
        self._totals.clear()
        self._sums.clear()

    def adopt(self, parameter: ValueId, tensor: torch.Tensor) -> None:
        """Put the owner's new value of a shared parameter in place."""
        self.tensors[parameter].copy_(tensor)


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.clone(memory_format=torch.preserve_format)


def _scaled(gradient: torch.Tensor, clip: float) -> torch.Tensor:
    return gradient if clip == 1.0 else gradient * clip


def _is_alone(tensor: torch.Tensor) -> bool:
    """Whether ``tensor`` lies densely, in memory that is only for it."""
    return tensor.is_contiguous() and tensor.untyped_storage().nbytes() == tensor.nbytes


def sum_of_squares(tensor: torch.Tensor) -> torch.Tensor:
    """The sum of squares in float64, in memory order: equal layouts give equal bits."""
    flat = tensor.as_strided((tensor.numel(),), (1,), tensor.storage_offset())
    first, *others = [flat] if flat.numel() <= _CHUNK else torch.split(flat, _CHUNK)
    total = _squared(first)
    for chunk in others:
        total += _squared(chunk)
    return total


def _squared(chunk: torch.Tensor) -> torch.Tensor:
    numbers = in_float64(chunk)
    return torch.dot(numbers, numbers)
