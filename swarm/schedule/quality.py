"""Which codecs a quality admits, by what the published table shows of them (decision D8).

The table has pairs of runs that differ in the codec alone. Training is not stable against the slightest
rounding: a model that ends near a loss of nothing differs by a fifth from a run whose activations were
rounded to bfloat16. So what the runs with the finest codec differ by is chance, and what the table *shows* of
a codec is its mean excess less twice what chance brings to such a mean, on the model where that is largest.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, sqrt
from statistics import fmean
from typing import Final

from swarm.schedule.codec_model import bits_per_element
from swarm.schedule.published import PUBLISHED, Excess
from swarm.wire.codecs import CodecSpec, Quality, parse_codec

LIMITS: Final[dict[Quality, float]] = {
    "lossless": 0.0,
    "faithful": 0.005,
    "tolerant": 0.05,
    "any": inf,
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
    """Every codec that the table has a row for of each model, the finest first, and ``fp32`` before them."""
    models = {model for row in table.values() for model in row}
    codecs = [codec for codec in _codecs(table) if table[str(codec)].keys() == models]
    rungs, most = [LOSSLESS], 0.0
    for codec in sorted(codecs, key=_coarseness):
        most = max(most, shown(str(codec), table)) + _TIE
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


def shown(codec: str, table: Excess) -> float:
    """What the table shows of ``codec`` beyond chance: of the model of which that is most, at least 0."""
    return max(
        0.0,
        *(
            fmean(pairs) - 2 * _chance(model, table) / sqrt(len(pairs))
            for model, pairs in table[codec].items()
        ),
    )


def _chance(model: str, table: Excess) -> float:
    """By how much two runs of a model differ of which one has the finest codec there is."""
    finest = min((codec for codec in _codecs(table) if model in table[str(codec)]), key=_coarseness)
    return sqrt(fmean(pair**2 for pair in table[str(finest)][model]))


def _codecs(table: Excess) -> list[CodecSpec]:
    """The codecs that have a row: policies that choose some have rows, too."""
    return [codec for codec in map(parse_codec, table) if codec is not None and codec != CodecSpec()]


def _coarseness(codec: CodecSpec) -> tuple[bool, float]:
    """What is selected comes after what is only rounded."""
    return codec.codec == "topk", -bits_per_element(codec)
