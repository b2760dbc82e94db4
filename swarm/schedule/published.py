"""What codecs cost in training, as docs/CONVERGENCE.md shows it: written by ``benchmarks/convergence.py``."""

from collections.abc import Mapping
from typing import Final

Excess = Mapping[str, Mapping[str, tuple[float, ...]]]
"""By codec and model, for each seed: the held-out loss by the one without a codec, less 1."""

PUBLISHED: Final[Excess] = {
    "int6": {
        "gpt": (0.000502, 0.001192, -0.000858),
        "resnet": (0.063941, 0.249816, 0.154615),
    },
    "int5": {
        "gpt": (0.002377, 0.002529, 0.000162),
        "resnet": (0.166607, 0.354834, -0.117031),
    },
    "int4": {
        "gpt": (0.006133, 0.012170, 0.003416),
        "resnet": (0.625462, -0.379271, 0.150091),
    },
    "int8": {
        "gpt": (-0.000067, -0.000068, 0.000001),
        "resnet": (-0.216581, -0.394630, 0.058596),
    },
}
