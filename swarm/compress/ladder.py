"""All codecs in one place: a tensor to a message's header, coding and payload, and back (decision D8).

What a codec cannot send faithfully travels as it is: tensors that are no floating point, of fewer than
:data:`SMALLEST` elements, with a NaN or an infinity. Such a message has no coding, and any receiver takes it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Final

import torch

from swarm.compress.bfloat import BFloat
from swarm.compress.codec import Arrived, Codec, Mask, Place, Rebuilt, Request, Taken
from swarm.compress.integers import Integers
from swarm.compress.layout import dump, dumping, rebuild
from swarm.compress.sections import pack, unpack
from swarm.compress.staging import pins
from swarm.compress.topk import TopK
from swarm.errors import LocalError
from swarm.wire.codecs import CodecSpec
from swarm.wire.coding import CodecName, Coding, check_coding
from swarm.wire.tensors import TensorHeader

SMALLEST: Final = 256
"""Elements below which a tensor travels as it is: its header is half of it already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoded:
    """A tensor ready for a link: how it describes itself, and the payload that this describes."""

    header: TensorHeader
    payload: memoryview
    coding: Coding | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenApart:
    """A tensor off its device, or on its way; its bytes may still have to be coded."""

    encode: Callable[[], Encoded]
    """Codes the bytes; may run on any thread."""
    plain: Encoded | None = None
    """What ``encode`` returns, where there is nothing to be coded."""
    mask: Mask | None = None
    """What the gradient of this activation is to be sent with."""


def take_apart(tensor: torch.Tensor, spec: CodecSpec, request: Request) -> TakenApart:
    """``tensor`` as ``spec`` says. To be called on the device thread; equal arguments give equal bytes."""
    if spec.codec != "fp32" and tensor.is_floating_point() and tensor.numel() >= SMALLEST:
        taken = _codec(spec).take_apart(tensor, request)
        if taken is not None:
            return TakenApart(encode=partial(_encoded, spec.codec, taken), mask=taken.mask)
    if pins(tensor.device):
        header, payload = dumping(tensor)
        return TakenApart(encode=lambda: Encoded(header=header, payload=payload()))
    plain = plainly(tensor)
    return TakenApart(encode=lambda: plain, plain=plain)


def plainly(tensor: torch.Tensor) -> Encoded:
    """``tensor`` with every element as it is; the payload may be its own memory
    (:func:`swarm.compress.layout.dump`)."""
    header, payload = dump(tensor)
    return Encoded(header=header, payload=payload)


def _encoded(codec: CodecName, taken: Taken) -> Encoded:
    sections, payload, checksum = pack(taken.parts())
    coding = Coding(
        codec=codec,
        sections=sections,
        checksum=checksum,
        kept=taken.kept,
        bits=taken.bits,
        order=taken.order,
        shift=taken.shift,
    )
    return Encoded(header=taken.header, payload=memoryview(payload), coding=coding)


def read(encoded: Encoded) -> Encoded | Arrived:
    """Decode the bytes of what arrived; may run on any thread.

    Raises RemoteProtocolError, before memory is allocated, where sizes do not fit each other, and for a
    payload that no codec writes.
    """
    coding = encoded.coding
    if coding is None:
        return encoded
    check_coding(encoded.header, coding, encoded.payload.nbytes)
    sections = unpack(coding, encoded.payload)
    return _codec(_reader(coding)).read(Arrived(header=encoded.header, coding=coding, sections=sections))


def put_together(arrived: Encoded | Arrived, place: Place) -> Rebuilt:
    """The tensor that was :func:`read`, with the layout that the encoder saw. On the device thread.

    Raises RemoteProtocolError where it is not what a codec writes.
    """
    if isinstance(arrived, Encoded):
        return Rebuilt(tensor=rebuild(arrived.header, arrived.payload, place.device))
    return _codec(_reader(arrived.coding)).put_together(arrived, place)


def _reader(coding: Coding) -> CodecSpec:
    return CodecSpec(coding.codec, 0, coding.bits or 8)


@lru_cache(maxsize=64)
def _codec(spec: CodecSpec) -> Codec:
    match spec.codec:
        case "bf16" | "bf16z":
            return BFloat(split=spec.codec == "bf16z")
        case "int8" | "int6" | "int5" | "int4":
            return Integers(spec.codec)
        case "topk":
            return TopK(spec.kept, spec.bits)
        case "fp32":
            raise LocalError("what is sent as it is has no codec")
