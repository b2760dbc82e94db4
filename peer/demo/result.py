"""What a demo came to: for ``--json``, and as the last lines for people."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from peer.wording import clean
from swarm.ids import short
from swarm.schedule.units import format_bytes, format_count
from swarm.services.status.document import StageStatus

TARGETS: Final = {"gpt": 2.3, "resnet": 0.5}
"""Held-out loss in nats that the full demo must reach. GPT, for a byte: byte frequencies alone give 3.26,
one byte of context 2.45. ResNet, for a picture: guessing among ten digits gives 2.30."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerResult:
    """One peer's part."""

    name: str
    id: str
    stages: Sequence[int]
    bytes_sent: int
    bytes_received: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Outcome of ``--verify``."""

    difference: float
    """Largest relative difference of a step's loss from PyTorch's."""
    worst_step: int
    identical: bool
    good: bool

    def lines(self) -> tuple[str, str]:
        """Both contracts in words."""
        return (
            f"largest relative difference from PyTorch {self.difference:.2g}, at step {self.worst_step}",
            f"{'bit-identical' if self.identical else 'NOT identical'} to one stage in one process",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoResult:
    """Everything that is told at the end."""

    model: str
    whole: bool
    """Whether the run had as many steps as the model's example asks for."""
    loss: Sequence[float]
    held_out: float | None
    comparison: Comparison | None
    tokens_per_second: float
    """Elements of the target that were learnt from in a second, over all steps but the first."""
    unit: str
    """What those are: tokens, or samples where each has one label."""
    peers: Sequence[PeerResult]
    stages: Sequence[StageStatus]
    explanation: Sequence[str]
    weights: Path
    status_url: str
    seconds: float

    def complaint(self) -> str:
        """Why the demo failed although it ran to its end; empty where it did not."""
        target = TARGETS[self.model]
        if self.whole and (self.held_out is None or not self.held_out < target):
            return f"the model did not learn: its held-out loss is {self.held_out}, and {target} is expected"
        part = max(1, len(self.loss) // 4)
        first, last = _mean(self.loss[:part]), _mean(self.loss[-part:])
        if len(self.loss) > 3 and not last < first:
            return f"the model did not learn: its loss went from {first:.4f} to {last:.4f}"
        if self.comparison is not None and not self.comparison.good:
            return f"--verify failed: {'; '.join(self.comparison.lines())}"
        return ""

    def document(self) -> dict[str, Any]:
        """The document of ``--json``."""
        verify = self.comparison and {
            "pytorch": self.comparison.difference,
            "self": self.comparison.identical,
        }
        return {
            "model": self.model,
            "loss": list(self.loss),
            "held_out": self.held_out,
            "verify": verify,
            "tokens_per_second": self.tokens_per_second,
            "peers": [
                {
                    "id": peer.id,
                    "name": peer.name,
                    "stages": list(peer.stages),
                    "bytes_sent": peer.bytes_sent,
                    "bytes_received": peer.bytes_received,
                }
                for peer in self.peers
            ],
            "plan": {
                "stages": [
                    {
                        "stage": stage.stage,
                        "holder": stage.holder,
                        "operators": stage.operators,
                        "memory": stage.memory,
                        "predicted_seconds": stage.predicted_seconds,
                    }
                    for stage in self.stages
                ],
                "explanation": list(self.explanation),
            },
            "weights": str(self.weights),
            "status_url": self.status_url,
            "seconds": self.seconds,
        }

    def lines(self) -> list[str]:
        """The summary."""
        held_out = "none" if self.held_out is None else f"{self.held_out:.4f}"
        ends = f"{self.loss[0]:.4f} at the start, {self.loss[-1]:.4f} at the end, {held_out} held out"
        lines = [
            f"loss      {ends} ({format_count(len(self.loss), 'step')}, {self.seconds:.0f} s)",
        ]
        if self.tokens_per_second:
            lines.append(f"speed     {self.tokens_per_second:.0f} {self.unit}/s")
        for peer in self.peers:
            stages = ", ".join(str(stage + 1) for stage in peer.stages) or "none"
            sent, received = format_bytes(peer.bytes_sent), format_bytes(peer.bytes_received)
            lines.append(f"{peer.name:<9} {short(peer.id)}, stage {stages}: sent {sent}, received {received}")
        lines += [f"plan      {clean(line)}" for line in self.explanation]
        if self.comparison is not None:
            lines += [f"verify    {line}" for line in self.comparison.lines()]
        return [*lines, f"weights   {self.weights}"]


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
