"""Models that people train, at small widths and with their full structure: what tests and benchmarks run.

The language models and the vision transformer are classes of ``transformers``, imported when one is made.
"""

from typing import Final

from swarm.testing.zoo import language, speech, stereo, vision
from swarm.testing.zoo.entry import Fields, ZooModel

__all__ = ["ZOO", "Fields", "ZooModel"]

ZOO: Final[dict[str, ZooModel]] = {
    **language.MODELS,
    **vision.MODELS,
    **stereo.MODELS,
    **speech.MODELS,
}
"""By name."""
