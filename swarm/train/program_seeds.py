"""Seeds of random operators: the same dropout mask whichever stage runs the operator, and on every replay."""

import hashlib
import struct
from dataclasses import dataclass
from typing import Literal

from swarm.ids import OperatorIndex


@dataclass(frozen=True, slots=True, kw_only=True)
class Seeds:
    """The seeds of one micro-batch of a job (decision D4)."""

    job: int
    """The job's seed, from its manifest; 0 up to 2**63."""
    mode: Literal["train", "evaluate"]
    step: int
    micro_batch: int

    def of(self, operator: OperatorIndex) -> int:
        """A seed of 64 bits: the first eight bytes, little-endian, of SHA-256 over what names the operator.

        Hashed are the mode's name, a zero byte, and job seed, step, micro-batch and operator index as
        little-endian 64-bit integers.
        """
        numbers = struct.pack("<4Q", self.job, self.step, self.micro_batch, operator)
        digest = hashlib.sha256(self.mode.encode() + b"\0" + numbers).digest()
        return int.from_bytes(digest[:8], "little")
