"""Which samples a micro-batch has: a pure function of the job's seed and the position in training (D11).

The samples of a run are one endless sequence: epoch 0, epoch 1, and so on, each a permutation of all samples
0..n-1. Micro-batch m of step s with b samples each and M micro-batches a step takes the b positions from
``(s * M + m) * b`` on; it may straddle epochs, or cover several where there are fewer samples than b.

The permutation of epoch e, for another implementation to reproduce (all numbers unsigned, big-endian bytes):

- Keys: SHAKE-256 of ``"fusion-swarm sampler 1" || seed (8 bytes) || e (8 bytes)``; its first 64 bytes are
  the round keys k_0..k_7 of 8 bytes each.
- Domain: with w the number of bits of n - 1, half the width is h = max(1, ceil(w / 2)); x has 2h bits, its
  left half L the upper h bits, its right half R the lower ones.
- A round r maps (L, R) to (R, L xor F(R xor k_r)), where F(z) is the upper h bits of the finaliser of
  splitmix64 (Steele, Lea and Flood 2014): ``z ^= z >> 30; z *= 0xbf58476d1ce4e5b9; z ^= z >> 27;
  z *= 0x94d049bb133111eb; z ^= z >> 31``, all modulo 2^64. Eight rounds are a Feistel network, hence a
  permutation of the 2h-bit numbers, whatever F is (Luby and Rackoff 1988).
- The sample at position p of the epoch is what the network makes of p, applied again until it is below n
  (cycle walking, Black and Rogaway 2002): a permutation of 0..n-1 that needs no memory.
"""

import hashlib
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

_TAG: Final = b"fusion-swarm sampler 1"
_ROUNDS: Final = 8
_KEY_BYTES: Final = 8


def indices(
    samples: int, *, seed: int, step: int, micro_batch: int, micro_batch_size: int, micro_batches: int
) -> NDArray[np.int64]:
    """The samples of one micro-batch, in order: ``micro_batch_size`` numbers below ``samples``.

    ``samples`` is at least 1 and at most 2^40; ``seed`` is below 2^64.
    """
    position = (step * micro_batches + micro_batch) * micro_batch_size
    wanted = micro_batch_size
    parts: list[NDArray[np.int64]] = []
    while wanted:
        epoch, offset = divmod(position, samples)
        count = min(wanted, samples - offset)
        parts.append(_permuted(samples, seed, epoch, np.arange(offset, offset + count, dtype=np.uint64)))
        position += count
        wanted -= count
    return np.concatenate(parts)


def held_out_batches(samples: int, micro_batch_size: int) -> int:
    """How many full micro-batches the held-out samples make; what remains of them is not measured."""
    return samples // micro_batch_size


def held_out_indices(micro_batch: int, micro_batch_size: int) -> NDArray[np.int64]:
    """The held-out samples of one micro-batch: in order, each once."""
    first = micro_batch * micro_batch_size
    return np.arange(first, first + micro_batch_size, dtype=np.int64)


def _permuted(samples: int, seed: int, epoch: int, positions: NDArray[np.uint64]) -> NDArray[np.int64]:
    half = np.uint64(max(1, -(-(samples - 1).bit_length() // 2)))
    keys = _round_keys(seed, epoch)
    walked = _network(positions, half, keys)
    outside = np.flatnonzero(walked >= samples)
    while outside.size:
        walked[outside] = _network(walked[outside], half, keys)
        outside = outside[walked[outside] >= samples]
    return walked.astype(np.int64)


def _network(x: NDArray[np.uint64], half: np.uint64, keys: tuple[np.uint64, ...]) -> NDArray[np.uint64]:
    left, right = x >> half, x & ((np.uint64(1) << half) - np.uint64(1))
    for key in keys:
        left, right = right, left ^ (_finalised(right ^ key) >> (np.uint64(64) - half))
    return (left << half) | right


def _finalised(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@lru_cache(maxsize=64)
def _round_keys(seed: int, epoch: int) -> tuple[np.uint64, ...]:
    material = _TAG + seed.to_bytes(8, "big") + epoch.to_bytes(8, "big")
    stream = hashlib.shake_256(material).digest(_ROUNDS * _KEY_BYTES)
    return tuple(
        np.uint64(int.from_bytes(stream[i : i + _KEY_BYTES], "big")) for i in range(0, len(stream), 8)
    )
