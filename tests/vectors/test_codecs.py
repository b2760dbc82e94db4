"""Golden bytes of every codec. The file is added to, never edited: who reads version 1 reads these."""

import json
from pathlib import Path

import msgspec
import pytest
import torch

from swarm.compress.codec import Mask, Place
from swarm.compress.ladder import Encoded, put_together, read
from swarm.wire.coding import Coding
from swarm.wire.tensors import TensorHeader

VECTORS = json.loads((Path(__file__).parent / "codecs_v1.json").read_text("utf-8"))
CPU = torch.device("cpu")
MASK = Mask(positions=torch.arange(3, 600, 20), shape=(20, 30), order=(0, 1))
"""Of the gradient among the vectors."""


def sample() -> torch.Tensor:
    """600 elements that every platform computes alike: small integers, scaled by a power of two."""
    numbers = torch.arange(600, dtype=torch.float64)
    return ((numbers * 7919 % 1009 - 504) / 512).float().view(20, 30)


NEAR = {"bf16": 0.004, "bf16z": 0.004, "int8": 0.005, "int6": 0.1, "int5": 0.2, "int4": 0.4}
"""Largest norm of the error, by the norm of what was encoded; a ramp's rotation has a large peak."""


@pytest.mark.parametrize("name", VECTORS)
def test_golden_bytes_are_read(name: str) -> None:
    vector = VECTORS[name]
    header = msgspec.convert(vector["header"], TensorHeader)
    coding = msgspec.convert(vector["coding"], Coding)
    encoded = Encoded(header=header, payload=memoryview(bytes.fromhex(vector["payload"])), coding=coding)
    rebuilt = put_together(read(encoded), Place(device=CPU, mask=MASK))
    expected = sample()
    if coding.codec != "topk":
        assert (rebuilt.tensor - expected).norm() <= NEAR[coding.codec] * expected.norm()
        return
    largest = torch.argsort(expected.abs().ravel(), descending=True, stable=True)[: coding.kept]
    chosen = torch.zeros(600, dtype=torch.bool)
    chosen[MASK.positions if coding.order == "mask" else largest] = True
    found = rebuilt.tensor.ravel()
    assert not found[~chosen].any()
    error = {4: 0.1, 8: 0.006, 16: 0.003}[coding.bits or 16]
    assert (found[chosen] - expected.ravel()[chosen]).abs().max() <= error


def test_every_codec_has_a_vector() -> None:
    assert {vector["coding"][0] for vector in VECTORS.values()} == {*NEAR, "topk"}
    assert {vector["coding"][5] for vector in VECTORS.values()} == {None, "rows", "channels", "mask"}
