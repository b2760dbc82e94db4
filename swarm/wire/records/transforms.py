"""Transforms of samples, as authors declare them and manifests carry them: a closed list, no code (D11)."""

from collections.abc import Iterable
from typing import Annotated, Final

from msgspec import Meta, Struct, ValidationError, convert, to_builtins

from swarm.wire.numbers import Fraction, Positive, Real
from swarm.wire.tensors import FLOATING, DType

MAX_TRANSFORMS: Final = 16
"""Of one field."""
MAX_PADDING: Final = 4096
MAX_CHANNELS: Final = 4096


class RandomCrop(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, kw_only=True, tag="crop"):
    """The item (..., H, W) with ``padding`` zeros on each side, cut to its size again at a random place."""

    padding: Annotated[int, Meta(ge=1, le=MAX_PADDING)]


class RandomHorizontalFlip(
    Struct, frozen=True, array_like=True, forbid_unknown_fields=True, kw_only=True, tag="flip"
):
    """The item (..., W) from right to left, with probability ``p``."""

    p: Fraction = 0.5


class Normalize(
    Struct, frozen=True, array_like=True, forbid_unknown_fields=True, kw_only=True, tag="normalize"
):
    """``(item - mean) / std`` for each channel of the item (C, ...), or one number for all of it.

    Whole numbers become float32 first, as they are. Held-out samples are normalised too.
    """

    mean: Annotated[tuple[Real, ...], Meta(min_length=1, max_length=MAX_CHANNELS)]
    std: Annotated[tuple[Positive, ...], Meta(min_length=1, max_length=MAX_CHANNELS)]


class Noise(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, kw_only=True, tag="noise"):
    """The item plus normally distributed numbers of standard deviation ``std``."""

    std: Positive


Transform = RandomCrop | RandomHorizontalFlip | Normalize | Noise
Transforms = Annotated[tuple[Transform, ...], Meta(max_length=MAX_TRANSFORMS)]
"""Of one field, in order."""
Kind = tuple[DType, tuple[int, ...]]
"""Data type and shape of one item."""


def transformed_kind(kind: Kind, transforms: Iterable[Transform]) -> Kind:
    """What items of ``kind`` become; raises ValueError, with one sentence, where a transform does not fit."""
    dtype, shape = kind
    for transform in transforms:
        problem = _problem(transform, dtype, shape)
        if problem:
            raise ValueError(f"{type(transform).__name__}: {problem}")
        if isinstance(transform, Normalize) and dtype not in FLOATING:
            dtype = "float32"
    return dtype, shape


def _problem(transform: Transform, dtype: DType, shape: tuple[int, ...]) -> str:
    try:
        convert(to_builtins(transform), type(transform))
    except ValidationError as error:
        return str(error)
    match transform:
        case RandomCrop() | RandomHorizontalFlip():
            return "" if len(shape) >= 2 else "it needs items of (..., height, width)"
        case Normalize():
            channels = len(transform.mean)
            if len(transform.std) != channels or 0.0 in transform.std:
                return "it needs as many std as mean, none of which is 0"
            if dtype == "bool":
                return "it needs numbers, and not truth values"
            fits = channels == 1 or shape[:1] == (channels,)
            return "" if fits else f"items of shape {list(shape)} have not {channels} channels"
        case Noise():
            return "" if dtype in FLOATING else f"it needs floating-point numbers, and not {dtype}"
