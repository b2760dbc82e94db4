"""The boundary tensors of one stage: their codecs, and the masks between forward and backward (D8)."""

import hashlib
import struct
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import torch

from swarm.compress.codec import Arrived, Mask, Place, Request
from swarm.compress.fidelity import Fidelity, fidelity_of
from swarm.compress.ladder import Encoded, TakenApart, put_together, read, take_apart
from swarm.graph.stage import Edge
from swarm.ids import StageIndex, ValueId
from swarm.wire.codecs import CodecSpec

SAMPLED_STEPS: Final = 10
"""Steps from one look at what codecs lose to the next: it codes a tensor once more, on the device thread."""

Direction = Literal["forward", "backward"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """The boundary tensors of one micro-batch, in one direction."""

    phase: Literal["train", "evaluate"]
    step: int
    micro_batch: int
    direction: Direction

    @property
    def is_sampled(self) -> bool:
        """Whether it is compared with what arrives."""
        return self.phase == "train" and self.micro_batch == 0 and self.step % SAMPLED_STEPS == 0

    def seed(self, job: int, value: ValueId) -> int:
        """The codec's seed for a tensor, made as ``swarm.train.program_seeds`` makes those of operators."""
        numbers = struct.pack("<4Q", job, self.step, self.micro_batch, value)
        digest = hashlib.sha256(f"{self.phase} {self.direction}\0".encode() + numbers).digest()
        return int.from_bytes(digest[:8], "little") >> 1


def codecs_of(
    lossy: Container[ValueId], edges: Sequence[Edge], senders: Mapping[StageIndex, CodecSpec]
) -> dict[ValueId, CodecSpec]:
    """The codec of each tensor on ``edges``, by the stage at their other end.

    ``lossy`` has the activations (:func:`swarm.graph.dag.activations`), in training and in evaluation alike;
    everything else travels as it is.
    """
    return {edge.value: senders[edge.stage] if edge.value in lossy else CodecSpec() for edge in edges}


class Boundaries:
    """Sends and receives the boundary tensors of one stage. Runs on the device thread.

    ``job`` is the job's seed. A mask is kept from a tensor's way forward until its gradient has come back.
    """

    def __init__(self, job: int, device: torch.device) -> None:
        self._job = job
        self._device = device
        self.fidelity: dict[Direction, Fidelity] = {}
        """Of the last tensor each way that was compared with what arrives of it."""
        self._sent: dict[tuple[int, ValueId], Mask] = {}
        self._received: dict[tuple[int, ValueId], Mask] = {}

    def send(
        self, tensors: Mapping[ValueId, torch.Tensor], passage: Passage, codecs: Mapping[ValueId, CodecSpec]
    ) -> dict[ValueId, TakenApart]:
        """Take ``tensors`` apart; what is left to do takes no device (:attr:`TakenApart.encode`)."""
        return {value: self._send(value, tensor, passage, codecs[value]) for value, tensor in tensors.items()}

    def receive(
        self, arrived: Mapping[ValueId, Encoded | Arrived], passage: Passage
    ) -> dict[ValueId, torch.Tensor]:
        """The tensors that were read (:func:`swarm.compress.ladder.read`).

        Raises RemoteProtocolError for one that no peer would send.
        """
        return {value: self._receive(value, tensor, passage) for value, tensor in arrived.items()}

    def forget(self) -> None:
        """The step is over or abandoned: no gradient of it comes any more."""
        self._sent.clear()
        self._received.clear()

    def _send(self, value: ValueId, tensor: torch.Tensor, passage: Passage, codec: CodecSpec) -> TakenApart:
        key, backward = (passage.micro_batch, value), passage.direction == "backward"
        mask = self._received.get(key) if backward else None
        request = Request(seed=passage.seed(self._job, value), gradient=backward, mask=mask)
        apart = take_apart(tensor, codec, request)
        if codec != CodecSpec() and passage.is_sampled:
            arrived = put_together(read(apart.encode()), Place(device=self._device, mask=mask))
            self.fidelity[passage.direction] = fidelity_of(tensor, arrived.tensor)
        if not backward and passage.phase == "train" and apart.mask is not None:
            self._sent[key] = apart.mask
        if backward:
            self._received.pop(key, None)  # now that it is sent
        return apart

    def _receive(self, value: ValueId, arrived: Encoded | Arrived, passage: Passage) -> torch.Tensor:
        key, backward = (passage.micro_batch, value), passage.direction == "backward"
        mask = self._sent.get(key) if backward else None
        rebuilt = put_together(arrived, Place(device=self._device, mask=mask))
        if not backward and passage.phase == "train" and rebuilt.mask is not None:
            self._received[key] = rebuilt.mask
        if backward:
            self._sent.pop(key, None)
        return rebuilt.tensor
