"""Codecs and policies: what manifests, plans and authors name them (decision D8)."""

import re
from typing import Annotated, Final, Literal, get_args

from msgspec import Meta, Struct

from swarm.errors import MisuseError
from swarm.wire.coding import CodecName, ValueBits
from swarm.wire.limits import MAX_STAGES

MILLION: Final = 1_000_000

MAX_RATIO: Final = 10_000
"""The most that a policy may ask a link's bytes to shrink; no codec gets near it."""

_TOPK: Final = re.compile(r"topk:(\d{1,3}(?:\.\d{1,4})?)%(?::(4|8|16))?")
_DEADLINE: Final = re.compile(r"deadline(?::(lossless|faithful|tolerant|any))?")
_RATED: Final = re.compile(r"(uniform|adatopk):(\d{1,5}(?:\.\d{1,3})?)")


Quality = Literal["lossless", "faithful", "tolerant", "any"]
"""How much a codec may cost that ``deadline`` chooses: see ``swarm.schedule.quality``."""


class CodecSpec(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A codec and its parameters; ``fp32`` sends every element as it is."""

    codec: Literal["fp32"] | CodecName = "fp32"
    kept: Annotated[int, Meta(ge=0, le=MILLION)] = 0
    """Entries of a million that ``topk`` keeps."""
    bits: ValueBits = 8
    """Bits of a value that ``topk`` keeps."""

    def __str__(self) -> str:
        if self.codec != "topk":
            return self.codec
        return f"topk:{self.kept * 100 / MILLION:g}%:{self.bits}"


Codecs = Annotated[tuple[CodecSpec, ...], Meta(min_length=1, max_length=MAX_STAGES)]
"""Of the boundary tensors that each stage sends forward, in order, and of their gradients."""


def may_choose(quality: Quality | None, codec: CodecSpec) -> bool:
    """Whether ``deadline`` may choose ``codec`` at this floor, whatever a published table shows of it."""
    return codec == CodecSpec() or quality == "any" or (quality != "lossless" and codec.codec != "topk")


def entries_kept(share: int, count: int) -> int:
    """How many of ``count`` elements top-k keeps that keeps ``share`` of a million: one at least."""
    return max(1, -(-count * share // MILLION))


class Policy(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """How the codec of each boundary is chosen.

    ``fixed``: ``codec`` everywhere. ``uniform``: top-k that shrinks each boundary ``ratio`` times.
    ``adatopk``: top-k on the boundaries that would take longest, so that none takes longer than the slowest
    now takes, divided by ``ratio``; the others go as they are. A quality: ``deadline`` with this floor, the
    least distortion for which communication hides behind computation.
    """

    kind: Literal["fixed", "uniform", "adatopk"] | Quality = "fixed"
    codec: CodecSpec = CodecSpec()
    ratio: Annotated[float, Meta(ge=1, le=MAX_RATIO)] = 1.0

    @property
    def quality(self) -> Quality | None:
        """The floor of ``deadline``; None for any other policy."""
        return None if self.kind in {"fixed", "uniform", "adatopk"} else self.kind  # type: ignore[return-value]

    def __str__(self) -> str:
        if self.quality is not None:
            return f"deadline:{self.quality}"
        if self.kind != "fixed":
            return f"{self.kind}:{self.ratio:g}"
        return "none" if self.codec == CodecSpec() else str(self.codec)


NO_COMPRESSION: Final = Policy()
"""Every element travels as it is."""


def parse_codec(text: str) -> CodecSpec | None:
    """The codec that ``text`` names, such as ``int8`` or ``topk:10%:8``; None where there is none."""
    if text == "fp32" or (text != "topk" and text in get_args(CodecName)):
        return CodecSpec(text)  # type: ignore[arg-type]
    found = _TOPK.fullmatch(text)
    kept = round(float(found[1]) * MILLION / 100) if found is not None else 0
    if found is None or not 0 < kept <= MILLION:
        return None
    return CodecSpec("topk", kept, int(found[2] or 8))  # type: ignore[arg-type]


def parse_policy(text: str) -> Policy:
    """The policy that ``text`` names. Raises MisuseError for any other text."""
    if text == "none":
        return NO_COMPRESSION
    deadline = _DEADLINE.fullmatch(text)
    if deadline is not None:
        return Policy(deadline[1] or "faithful")  # type: ignore[arg-type]
    rated = _RATED.fullmatch(text)
    if rated is not None and 1 <= float(rated[2]) <= MAX_RATIO:
        return Policy(rated[1], CodecSpec(), float(rated[2]))  # type: ignore[arg-type]
    codec = parse_codec(text)
    if codec is None:
        names = ", ".join(name for name in get_args(CodecName) if name != "topk")
        raise MisuseError(
            f"there is no policy {text!r}: take none, deadline or deadline:QUALITY with one of "
            f"{', '.join(get_args(Quality))}, uniform:R or adatopk:R with a ratio R from 1 to {MAX_RATIO}, "
            f"or one codec: {names}, topk:PERCENT% or topk:PERCENT%:BITS with 4, 8 or 16 bits"
        )
    return Policy("fixed", codec)
