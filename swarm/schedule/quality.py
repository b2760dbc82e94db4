"""Which codecs a quality admits, by what the published table shows of them (decision D8).

The table has pairs of runs that differ in the codec alone. What it *shows* of a codec is its mean excess less
the standard error of that mean, on the model where this is largest: what is within the noise is not shown.
"""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from swarm.schedule.codec_model import bits_per_element
from swarm.schedule.published import PUBLISHED, Excess
from swarm.wire.codecs import CodecSpec, Quality, parse_codec

LIMITS: Final[dict[Quality, float]] = {
    "lossless": 0.0,
    "faithful": 0.005,
    "tolerant": 0.05,
    "any": math.inf,
}
"""The largest excess that the table may show, relative to the loss without a codec, from the finest on."""

_TIE: Final = 1e-9
"""What a coarser codec counts more than a finer one of which the table shows the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """A codec that may be chosen."""

    codec: CodecSpec
    distortion: float
    """What the table shows; never less than of a finer codec."""
    quality: Quality
    """The finest that admits it."""
    coding: float = 0.0
    """Seconds to encode and decode an element, as fitted on the machine."""


LOSSLESS: Final = Rung(codec=CodecSpec(), distortion=0.0, quality="lossless")


def ladder(table: Excess = PUBLISHED) -> tuple[Rung, ...]:
    """Every codec that the table has a row for, from the finest to the coarsest, and ``fp32`` before them."""
    codecs = [codec for codec in map(parse_codec, table) if codec is not None and codec != CodecSpec()]
    rungs, most = [LOSSLESS], 0.0
    for codec in sorted(codecs, key=_coarseness):
        most = max(most, shown(table[str(codec)].values())) + _TIE
        quality = next(name for name, limit in LIMITS.items() if name != "lossless" and most <= limit)
        rungs.append(Rung(codec=codec, distortion=most, quality=quality))
    return tuple(rungs)


def admitted(rungs: Iterable[Rung], quality: Quality) -> tuple[Rung, ...]:
    """Those of ``rungs`` that ``quality`` admits."""
    order = list(LIMITS)
    return tuple(rung for rung in rungs if order.index(rung.quality) <= order.index(quality))


def fitted(rungs: Sequence[Rung], coding: Mapping[CodecSpec, float]) -> tuple[Rung, ...]:
    """The rungs with the seconds an element that were measured here."""
    return tuple(replace(rung, coding=coding.get(rung.codec, 0.0)) for rung in rungs)


def shown(models: Iterable[tuple[float, ...]]) -> float:
    """What pairs of runs show for sure, by model; at least 0, and infinite of a codec without any."""
    return max((_surely(pairs) for pairs in models if pairs), default=math.inf)


def _surely(pairs: tuple[float, ...]) -> float:
    error = statistics.stdev(pairs) / math.sqrt(len(pairs)) if len(pairs) > 1 else 0.0
    return max(statistics.fmean(pairs) - error, 0.0)


def _coarseness(codec: CodecSpec) -> tuple[bool, float]:
    """What is selected comes after what is only rounded."""
    return codec.codec == "topk", -bits_per_element(codec)
