"""Transforms of samples: random ones for training, seeded by (step, sample), and normalisation (D11).

They are data of a closed list, carried by the manifest, and run in numpy where a stage reads its samples. A
random one draws for each sample by the job's seed, the step, the sample's index and its own place among the
field's transforms, whatever stage, peer or replay asks. Two fields with the same crops and flips are cropped
and flipped alike, as an image and its mask have to be; noise is each field's own.

Shapes are suffixes: N samples, C channels, H height, W width.
"""
# ruff: noqa: N803, N806

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from swarm.errors import MisuseError
from swarm.wire.records.transforms import (
    MAX_TRANSFORMS,
    Kind,
    Noise,
    Normalize,
    RandomCrop,
    RandomHorizontalFlip,
    Transform,
    Transforms,
    transformed_kind,
)

__all__ = ["Noise", "Normalize", "RandomCrop", "RandomHorizontalFlip", "Transform"]

Array = NDArray[Any]

_TAG: Final = b"fusion-swarm transform 1"
_KINDS: Final = "RandomCrop(...), RandomHorizontalFlip(...), Normalize(...) or Noise(...)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """What the random transforms of one field draw by in one micro-batch."""

    seed: int
    """The job's."""
    step: int
    samples: NDArray[np.int64]
    """The dataset's indices of the samples, in the order of the micro-batch."""
    field: int = 0


def transformed(items: Array, transforms: Sequence[Transform], draw: Draw) -> Array:
    """``items`` (N, *item) after ``transforms``, in memory of its own where there are some."""
    for place, transform in enumerate(transforms):
        match transform:
            case Normalize():
                items = _normalized(items, transform)
            case Noise():
                items = _each(items, draw, f"{place} {draw.field}", transform)
            case RandomCrop() | RandomHorizontalFlip():
                items = _each(items, draw, f"{place}", transform)
    return items


def micro_batch(samples: Sequence[Array], transforms: Sequence[Transforms], draws: Draw) -> list[Array]:
    """The fields of a micro-batch, taken out of all ``samples`` by ``draws`` and transformed."""
    chosen = [field[draws.samples] for field in samples]
    if not transforms:
        return chosen
    return [
        transformed(items, transforms[position], replace(draws, field=position))
        for position, items in enumerate(chosen)
    ]


def for_evaluation(transforms: Sequence[Transforms]) -> tuple[Transforms, ...]:
    """Those of each field that held-out samples go through too: what is not random."""
    return tuple(tuple(t for t in field if isinstance(t, Normalize)) for field in transforms)


def in_order(given: object, names: Sequence[int | str], kinds: Sequence[Kind]) -> tuple[Transforms, ...]:
    """What an author gave, for each field; ``names`` are those that fields go by, ``kinds`` their items'.

    Raises MisuseError where it is no mapping from such names to transforms that fit.
    """
    if not isinstance(given, Mapping):
        raise MisuseError(f"transforms are a mapping from fields to tuples of {_KINDS}, and not {given!r}")
    unknown = [name for name in given if name not in names]
    if unknown:
        known = ", ".join(map(repr, names))
        raise MisuseError(f"transforms are given for field {unknown[0]!r}, and samples have {known}")
    found: list[Transforms] = []
    for name, kind in zip(names, kinds, strict=True):
        transforms = given.get(name, ())
        if not isinstance(transforms, tuple) or len(transforms) > MAX_TRANSFORMS:
            raise MisuseError(f"the transforms of field {name!r} are a tuple of at most {MAX_TRANSFORMS}")
        for transform in transforms:
            if not isinstance(transform, Transform):
                raise MisuseError(f"the transforms of field {name!r} are {_KINDS}, and not {transform!r}")
        try:
            transformed_kind(kind, transforms)
        except ValueError as error:
            raise MisuseError(f"field {name!r} cannot have {error}") from None
        found.append(transforms)
    return tuple(found) if any(found) else ()


def _normalized(items_NC: Array, transform: Normalize) -> Array:
    """In float32, unless the items are of another type with a point."""
    kind = items_NC.dtype if items_NC.dtype.kind == "f" else np.dtype(np.float32)
    channels = (-1, *(1 for _ in items_NC.shape[2:])) if len(transform.mean) > 1 else ()
    mean, std = (np.asarray(v, kind).reshape(channels) for v in (transform.mean, transform.std))
    normalized: Array = (items_NC.astype(kind) - mean) / std
    return normalized


def _each(items: Array, draw: Draw, place: str, transform: Transform) -> Array:
    made = np.empty_like(items)
    for row, sample in enumerate(draw.samples.tolist()):
        made[row] = _drawn(items[row], transform, _chance(draw, place, sample))
    return made


def _drawn(item_HW: Array, transform: Transform, chance: np.random.Generator) -> Array:
    match transform:
        case RandomCrop(padding=padding):
            top, left = chance.integers(0, 2 * padding + 1, 2)
            *others, H, W = item_HW.shape
            room = [*((0, 0) for _ in others), (padding, padding), (padding, padding)]
            padded = np.pad(item_HW, room)
            return padded[..., top : top + H, left : left + W]
        case RandomHorizontalFlip(p=p):
            return item_HW[..., ::-1] if chance.random() < p else item_HW
        case Noise(std=std):
            drawn = chance.standard_normal(item_HW.shape) * std
            noisy: Array = item_HW + drawn.astype(item_HW.dtype)
            return noisy
        case _:
            return item_HW


def _chance(draw: Draw, place: str, sample: int) -> np.random.Generator:
    """Philox under the first 16 bytes of SHA-256 over what names the draw."""
    text = f"{draw.seed} {draw.step} {sample} {place}".encode()
    key = int.from_bytes(hashlib.sha256(_TAG + b"\0" + text).digest()[:16], "little")
    return np.random.Generator(np.random.Philox(key=key))
