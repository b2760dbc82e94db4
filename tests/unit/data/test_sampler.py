"""The sampler against its description, written out again here with Python integers."""

import hashlib
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarm.data.sampler import held_out_batches, held_out_indices, indices

MASK = 2**64 - 1


def finalised(z: int) -> int:
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def described(samples: int, seed: int, epoch: int, position: int) -> int:
    """The module's docstring, step by step."""
    stream = hashlib.shake_256(
        b"fusion-swarm sampler 1" + seed.to_bytes(8, "big") + epoch.to_bytes(8, "big")
    ).digest(64)
    keys = [int.from_bytes(stream[8 * r : 8 * r + 8], "big") for r in range(8)]
    half = max(1, -(-(samples - 1).bit_length() // 2))
    x = position
    while True:
        left, right = x >> half, x & ((1 << half) - 1)
        for key in keys:
            left, right = right, left ^ (finalised(right ^ key) >> (64 - half))
        x = (left << half) | right
        if x < samples:
            return x


@pytest.mark.parametrize(
    ("samples", "step", "expected"),
    [
        (10, 0, [5, 2, 6, 8]),
        (10, 1, [4, 0, 7, 5]),
        (1000, 0, [765, 818, 842, 685]),
        (2**40, 3, [74154543392, 662250490129, 1001727861650, 1077447613167]),
    ],
)
def test_vectors(samples: int, step: int, expected: list[int]):
    chosen = indices(samples, seed=1, step=step, micro_batch=0, micro_batch_size=4, micro_batches=2)
    assert chosen.tolist() == expected


@given(
    st.integers(1, 2**40),
    st.integers(0, 2**63 - 1),
    st.integers(0, 2**40 - 1),
    st.integers(1, 9),
    st.integers(1, 5),
)
def test_every_sample_is_the_one_that_the_description_names(
    samples: int, seed: int, step: int, size: int, micro_batches: int
):
    micro_batch = step % micro_batches
    chosen = indices(
        samples,
        seed=seed,
        step=step,
        micro_batch=micro_batch,
        micro_batch_size=size,
        micro_batches=micro_batches,
    )
    first = (step * micro_batches + micro_batch) * size
    expected = [described(samples, seed, *divmod(first + k, samples)) for k in range(size)]
    assert chosen.dtype == np.int64
    assert chosen.tolist() == expected


@given(st.integers(1, 60), st.integers(1, 7), st.integers(1, 4), st.integers(0, 2**32))
def test_each_epoch_has_every_sample_once_across_micro_batches_and_steps(
    samples: int, size: int, micro_batches: int, seed: int
):
    drawn: list[int] = []
    step = 0
    while len(drawn) < 3 * samples:
        for micro_batch in range(micro_batches):
            drawn += indices(
                samples,
                seed=seed,
                step=step,
                micro_batch=micro_batch,
                micro_batch_size=size,
                micro_batches=micro_batches,
            ).tolist()
        step += 1
    for epoch in range(3):
        assert sorted(drawn[epoch * samples : (epoch + 1) * samples]) == list(range(samples))


def epoch_of(samples: int, seed: int, epoch: int = 0) -> tuple[int, ...]:
    drawn = indices(samples, seed=seed, step=epoch, micro_batch=0, micro_batch_size=samples, micro_batches=1)
    return tuple(drawn.tolist())


def test_all_orders_of_four_samples_are_about_equally_likely():
    counts = Counter(epoch_of(4, seed) for seed in range(4800))
    assert len(counts) == 24
    assert 140 < min(counts.values()) <= max(counts.values()) < 265  # 200 each, five standard deviations


def test_epochs_and_seeds_have_orders_of_their_own():
    orders = {epoch_of(50, seed, epoch) for seed in range(20) for epoch in range(20)}
    assert len(orders) == 400


def test_the_order_is_not_near_the_original_one():
    drawn = np.array(epoch_of(10_000, 7))
    correlation = np.corrcoef(drawn, np.arange(10_000))[0, 1]
    assert abs(correlation) < 0.05
    assert np.mean(np.abs(np.diff(drawn)) == 1) < 0.01


def test_a_huge_dataset_costs_no_more_than_a_small_one():
    drawn = indices(2**40, seed=0, step=2**40, micro_batch=4095, micro_batch_size=64, micro_batches=4096)
    assert len(set(drawn.tolist())) == 64
    assert 0 <= drawn.min() <= drawn.max() < 2**40


def test_held_out_samples_come_in_order_and_full_micro_batches_only():
    assert held_out_batches(10, 4) == 2
    assert held_out_batches(3, 4) == 0
    assert [held_out_indices(m, 4).tolist() for m in range(2)] == [[0, 1, 2, 3], [4, 5, 6, 7]]
