"""Codecs: how near positions come to their entropy, how fast they are, how small real tensors get."""

import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Final, TypeVar

import torch
import typer

from benchmarks.codecs.tensors import BoundaryPair, boundary_pairs
from benchmarks.common import Row, Table, Target, Versions, compared
from bootstrap.commandline import run_program, single_command
from swarm.compress.codec import Place, Request
from swarm.compress.ladder import Encoded, put_together, read, take_apart
from swarm.compress.selection import largest
from swarm.wire.codecs import CodecSpec, parse_policy

CPU: Final = torch.device("cpu")
MB: Final = 1_000_000
NAIVE_BITS: Final = 96
"""An entry as a 64-bit index and a float32, as top-k is often sent."""
SHARES: Final = ("25", "10", "3", "1", "0.1")
"""Per cent of entries kept, where positions are compared with their entropy."""
ENCODED: Final = {"int8": 500.0, "topk:10%:8": 200.0, "topk:3%:8": 200.0, "topk:1%:8": 200.0}
DECODED: Final = {"topk:10%:8": 400.0, "topk:3%:8": 400.0, "topk:1%:8": 400.0}
"""MB/s of input that a core must do at least."""
UNTARGETED: Final = ("bf16", "bf16z", "int6", "int5", "int4")

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class CodecOptions:
    """Measure codecs beside the entropy of positions, torch.topk, and what they must reach.

    Example: python benchmarks/codec.py --check
    """

    elements: Annotated[int, typer.Option(help="Elements of the tensor that is timed.", min=2**12)] = 2**24
    repetitions: Annotated[int, typer.Option(help="Takes of each time; the median counts.", min=1)] = 7
    json: Annotated[bool, typer.Option("--json", help="Print data in place of a table.")] = False
    check: Annotated[bool, typer.Option("--check", help="Exit 1 where a target is missed.")] = False


def measure(options: CodecOptions) -> Table:
    """All rows, on one core."""
    versions = Versions.here("torch", "zstandard", "numpy")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        tensor = torch.randn(options.elements, generator=torch.Generator().manual_seed(0)).view(-1, 64)
        rows = [
            *(_positions(tensor, share) for share in SHARES),
            _selection(tensor, options.repetitions),
            *_speeds(tensor, options.repetitions),
        ]
        for pair in boundary_pairs():
            rows += _sizes(pair)
    finally:
        torch.set_num_threads(threads)
    return Table(
        title=f"codecs on {options.elements:,} elements of noise, and on boundary tensors of models",
        first="ours",
        second="beside it",
        rows=rows,
        versions=versions,
        remarks=[
            "times are processor time of one thread; beside a speed stands the one to reach",
            f"beside whole messages: {NAIVE_BITS} bits an entry for top-k, float32 for the others",
        ],
    )


def _positions(tensor: torch.Tensor, share: str) -> Row:
    encoded = _encode(tensor, parse_policy(f"topk:{share}%:8").codec)
    if encoded.coding is None:
        raise RuntimeError("noise was sent as it is")
    count, kept = tensor.numel(), encoded.coding.kept
    bits = 8 * sum(section.stored for section in encoded.coding.sections[:2]) / kept
    bound = _choices(count, kept) / kept
    target = Target(most=1.05)
    what = f"bits of a position beside its entropy, {share}% kept"
    return Row(what=what, first=bits, second=bound, unit="bits", ratio=bits / bound, target=target)


def _choices(count: int, kept: int) -> float:
    """log2 C(count, kept)."""
    found = math.lgamma(count + 1) - math.lgamma(kept + 1) - math.lgamma(count - kept + 1)
    return found / math.log(2)


def _selection(tensor: torch.Tensor, repetitions: int) -> Row:
    """How many times as fast as torch the largest 1% are found."""
    flat = tensor.view(-1)
    kept = flat.numel() // 100
    ours, theirs = [], []
    for seed in range(repetitions):
        ours.append(1e3 * _timed(lambda seed=seed: largest(flat, kept, seed=seed))[1])  # type: ignore[misc]
        theirs.append(1e3 * _timed(lambda: torch.topk(flat.abs(), kept, sorted=False))[1])
    times = compared("", ours, theirs, unit="ms")
    return Row(
        what="selection of the largest 1% beside torch.topk, times as fast",
        first=times.first,
        second=times.second,
        unit="ms",
        ratio=1 / times.ratio,
        target=Target(least=10.0),
    )


def _speeds(tensor: torch.Tensor, repetitions: int) -> list[Row]:
    size = tensor.numel() * tensor.element_size() / MB
    rows = []
    for text in (*ENCODED, *UNTARGETED):
        codec = parse_policy(text).codec
        encoding, decoding = [], []
        for _ in range(repetitions):
            encoded, seconds = _timed(lambda codec=codec: _encode(tensor, codec))  # type: ignore[misc]
            encoding.append(size / seconds)
            decoding.append(size / _timed(lambda encoded=encoded: _decode(encoded))[1])  # type: ignore[misc]
        rows.append(_speed(f"encode {text}", encoding, ENCODED.get(text)))
        rows.append(_speed(f"decode {text}", decoding, DECODED.get(text)))
    return rows


def _speed(what: str, found: list[float], least: float | None) -> Row:
    median = sorted(found)[len(found) // 2]
    beside = least or median
    target = Target(least=1.0) if least is not None else None
    return Row(what=what, first=median, second=beside, unit="MB/s", ratio=median / beside, target=target)


def _sizes(pair: BoundaryPair) -> list[Row]:
    """Whole messages of an activation and its gradient."""
    rows = []
    for text in ("topk:10%:8", "topk:1%:8", "int8", "int6", "int4", "bf16z"):
        codec = parse_policy(text).codec
        apart = take_apart(pair.activation, codec, Request(seed=0, gradient=False))
        forward = apart.encode()
        gradient = Request(seed=0, gradient=True, mask=apart.mask)
        backward = take_apart(pair.gradient, codec, gradient).encode()
        for which, encoded in (("activation", forward), ("gradient", backward)):
            kept = encoded.coding.kept if encoded.coding is not None else 0
            beside = NAIVE_BITS * kept if kept else 32 * pair.activation.numel()
            sizes = (encoded.payload.nbytes / 1000, beside / 8000)
            what = f"{text}, {which} of {pair.model}"
            rows.append(Row(what=what, first=sizes[0], second=sizes[1], unit="kB", ratio=sizes[0] / sizes[1]))
    return rows


def _encode(tensor: torch.Tensor, codec: CodecSpec) -> Encoded:
    return take_apart(tensor, codec, Request(seed=1, gradient=False)).encode()


def _decode(encoded: Encoded) -> torch.Tensor:
    return put_together(read(encoded), Place(device=CPU)).tensor


def _timed(work: Callable[[], Result]) -> tuple[Result, float]:
    """The result, and seconds of this thread's processor time."""
    began = time.thread_time()
    result = work()
    return result, time.thread_time() - began


def main(options: CodecOptions) -> int:
    """Measure and print; returns the exit status."""
    return measure(options).publish(json=options.json, check=options.check)


if __name__ == "__main__":
    sys.exit(run_program(single_command("codec", CodecOptions, main), "codec", sys.argv[1:]))
