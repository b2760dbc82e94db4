"""The micro-batches of one stage between their forward and their backward."""

from dataclasses import dataclass

import torch

from swarm.errors import LocalError
from swarm.ids import ValueId
from swarm.train.program_seeds import Seeds
from swarm.train.stage_pass import ForwardResult, StagePass, Tensors

Found = list[torch.Tensor | None]
"""Gradients; None where the loss does not depend on something."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Recorded:
    """A micro-batch's forward, with its autograd graph: what gradients are wanted for, and whose come."""

    leaves: dict[ValueId, torch.Tensor]
    roots: dict[ValueId, torch.Tensor]


@dataclass(slots=True, kw_only=True)
class _Flight:
    """One micro-batch."""

    start: Tensors
    """All that its forward started from, to run it again."""
    seeds: Seeds
    recorded: _Recorded | None = None
    """Its graph, unless it is recomputed."""


class Flights:
    """Runs micro-batches forward and, once each, backward.

    ``leaves`` are the stage's parameters at their uses, ``recompute`` whether a micro-batch leaves only what
    its forward started from, and its backward runs the forward again.
    """

    def __init__(self, stage_pass: StagePass, leaves: list[torch.Tensor], *, recompute: bool) -> None:
        self._pass = stage_pass
        self._leaves = leaves
        self._recompute = recompute
        self._flying: dict[int, _Flight] = {}

    def __contains__(self, micro_batch: int) -> bool:
        return micro_batch in self._flying

    def forward(
        self, micro_batch: int, start: Tensors, seeds: Seeds
    ) -> tuple[dict[ValueId, torch.Tensor], ForwardResult]:
        """Run a micro-batch forward from ``start``; returns the values that are kept, and the result."""
        flight = _Flight(start=start, seeds=seeds)
        values, recorded, result = self._record(flight)
        if not self._recompute:
            flight.recorded = recorded
        self._flying[micro_batch] = flight
        return values, result

    def backward(
        self, micro_batch: int, gradients: Tensors, share: float
    ) -> tuple[dict[ValueId, torch.Tensor | None], Found]:
        """The gradients of incoming boundary tensors, and those of the leaves.

        ``gradients`` are those of outgoing boundary tensors; the loss starts with ``share``, its part of the
        mean over the micro-batches. A graph serves once: where this fails, and is called again, the forward
        is run again. The flight ends with :meth:`land`.
        """
        flight = self._flying[micro_batch]
        recorded, flight.recorded = flight.recorded, None
        if recorded is None:
            _, recorded, _ = self._record(flight)
        wanted = [*recorded.leaves.values(), *self._leaves]
        found = self._differentiate(recorded, gradients, wanted, share)
        incoming = len(recorded.leaves)
        return dict(zip(recorded.leaves, found[:incoming], strict=True)), found[incoming:]

    def land(self, micro_batch: int) -> None:
        """Its gradients are added up."""
        del self._flying[micro_batch]

    def let_go(self) -> None:
        """Drop what can be made anew, and keep no more of it."""
        self._recompute = True
        for flight in self._flying.values():
            flight.recorded = None

    def forget(self) -> None:
        """Drop all of them."""
        self._flying.clear()

    def _record(self, flight: _Flight) -> tuple[dict[ValueId, torch.Tensor], _Recorded, ForwardResult]:
        """Run a micro-batch forward; where it is recomputed, twice alike.

        The first time is recorded too, though nobody asks for its gradients: with a graph, torch may run
        other kernels than without.
        """
        stage, graph, values = self._pass.stage, self._pass.graph, dict(flight.start)
        leaves = {
            edge.value: values[edge.value].detach().requires_grad_()
            for edge in stage.incoming
            if edge.gradient
        }
        values |= leaves
        result = self._pass.forward(values, flight.seeds, record=True)
        kept = [edge.value for edge in stage.outgoing if edge.gradient]
        if stage.loss:
            kept.append(ValueId(graph.loss))
        return values, _Recorded(leaves=leaves, roots={value: values[value] for value in kept}), result

    def _differentiate(
        self, recorded: _Recorded, gradients: Tensors, wanted: list[torch.Tensor], share: float
    ) -> Found:
        loss = recorded.roots.get(ValueId(self._pass.graph.loss)) if self._pass.stage.loss else None
        given = {value: tensor for value, tensor in gradients.items() if value in recorded.roots}
        if len(given) != len(gradients):
            strangers = sorted(set(gradients) - set(given))
            raise LocalError(f"stage {self._pass.stage.index} was given gradients of {strangers}")
        if loss is not None:
            given[ValueId(self._pass.graph.loss)] = torch.full_like(loss, share)
        roots = {value: recorded.roots[value] for value in given if recorded.roots[value].requires_grad}
        if not roots or not wanted:
            return [None] * len(wanted)
        starts = [given[value] for value in roots]
        return list(torch.autograd.grad(list(roots.values()), wanted, starts, allow_unused=True))
