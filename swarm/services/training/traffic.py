"""Bytes of boundary tensors that a stage has sent, for its status."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from swarm.compress.boundaries import Direction
from swarm.compress.fidelity import Fidelity
from swarm.compress.ladder import Encoded
from swarm.services.status.document import EncodingStatus
from swarm.wire.codecs import CodecSpec


@dataclass(slots=True)
class _OneWay:
    """Bytes."""

    dense: int = 0
    """As they are."""
    sent: int = 0
    """As they were sent."""


class Traffic:
    """What one stage has sent each way."""

    def __init__(self) -> None:
        self._ways: dict[Direction, _OneWay] = {}

    def count(self, direction: Direction, encoded: Encoded) -> None:
        """A tensor is sent."""
        way = self._ways.setdefault(direction, _OneWay())
        way.dense += encoded.header.payload_bytes
        way.sent += encoded.payload.nbytes

    def described(
        self, codecs: Mapping[Direction, CodecSpec], fidelity: Callable[[Direction], Fidelity | None]
    ) -> tuple[EncodingStatus, ...]:
        """What was sent so far, in which codecs now, and what those lost of the last tensor looked at."""
        found = []
        for direction, way in sorted(self._ways.items()):
            looked_at = fidelity(direction)
            error = looked_at.relative_error if looked_at is not None else math.nan
            cosine = looked_at.cosine if looked_at is not None else math.nan
            found.append(
                EncodingStatus(
                    direction=direction,
                    codec=str(codecs[direction]),
                    bytes=way.dense,
                    sent=way.sent,
                    relative_error=error if math.isfinite(error) else None,
                    cosine=cosine if math.isfinite(cosine) else None,
                )
            )
        return tuple(found)
