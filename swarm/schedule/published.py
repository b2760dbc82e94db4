"""What codecs cost in training, as docs/CONVERGENCE.md shows it: written by ``benchmarks/convergence.py``."""

from collections.abc import Mapping
from typing import Final

Excess = Mapping[str, Mapping[str, tuple[float, ...]]]
"""By codec and model, for each seed: the held-out loss by the one without a codec, less 1."""

PUBLISHED: Final[Excess] = {}
