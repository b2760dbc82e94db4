"""What codecs cost in training, as docs/CONVERGENCE.md shows it: written by ``benchmarks/convergence.py``."""

from collections.abc import Mapping
from typing import Final

Excess = Mapping[str, Mapping[str, tuple[float, ...]]]
"""By codec and model, for each seed: the held-out loss by the one without a codec, less 1."""

PUBLISHED: Final[Excess] = {
    "bf16": {
        "gpt": (0.000014, -0.000032, 0.000028),
        "resnet": (-0.298935, 0.151471, -0.036071),
    },
    "bf16z": {
        "gpt": (0.000014, -0.000032, 0.000028),
        "resnet": (-0.298935, 0.151471, -0.036071),
    },
    "int8": {
        "gpt": (-0.000067, -0.000068, 0.000001),
        "resnet": (-0.216581, -0.394630, 0.058596),
    },
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
    "topk:10%:8": {
        "gpt": (0.141251, 0.127128, 0.113873),
        "resnet": (1.955863, 1.842423, 1.964384),
    },
    "topk:3%:8": {
        "gpt": (0.227167, 0.249426, 0.286454),
        "resnet": (7.564943, 10.303312, 4.922532),
    },
    "topk:1%:8": {
        "gpt": (0.391122, 0.314145, 0.390378),
        "resnet": (21.873435, 22.662391, 20.534264),
    },
}
