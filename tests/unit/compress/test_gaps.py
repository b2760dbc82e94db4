import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarm.compress.gaps import decode_gaps, encode_gaps, shift_for
from swarm.compress.sections import Part, pack
from swarm.errors import RemoteProtocolError
from swarm.wire.coding import low_bytes


@given(
    positions=st.sets(st.integers(0, 50_000), max_size=200).map(sorted),
    shift=st.integers(0, 12),
    beyond=st.integers(1, 1000),
)
def test_positions_come_back(positions: list[int], shift: int, beyond: int) -> None:
    numbers = np.asarray(positions, np.int64)
    high, low = encode_gaps(numbers, shift)
    assert low.size == low_bytes(len(positions), shift)
    count = (positions[-1] if positions else 0) + beyond
    assert (decode_gaps(high, low, kept=len(positions), shift=shift, count=count) == numbers).all()


def test_a_gap_of_many_bytes_is_passed_over_by_skips() -> None:
    numbers = np.asarray([5, 5 + 255 + 1, 5 + 255 + 1 + 255 * 7 + 1, 4000], np.int64)
    high, low = encode_gaps(numbers, 0)
    assert high.tolist()[:3] == [5, 255, 0]
    assert (decode_gaps(high, low, kept=4, shift=0, count=4001) == numbers).all()


@pytest.mark.parametrize(
    ("high", "kept", "count"),
    [([1, 2], 3, 100), ([1, 2, 255], 2, 10_000), ([1, 2], 2, 4), ([255, 255, 0], 1, 510)],
    ids=["too few", "a skip at the end", "beyond the end", "skips beyond the end"],
)
def test_gaps_that_no_encoder_writes_are_refused(high: list[int], kept: int, count: int) -> None:
    with pytest.raises(RemoteProtocolError, match="gaps"):
        decode_gaps(np.asarray(high, np.uint8), np.empty(0, np.uint8), kept=kept, shift=0, count=count)


def test_gaps_whose_sum_would_begin_anew_at_64_bits_are_refused() -> None:
    high, low = np.full(2, 254, np.uint8), np.zeros(55, np.uint8)
    with pytest.raises(RemoteProtocolError, match="beyond"):
        decode_gaps(high, low, kept=2, shift=55, count=100)


@pytest.mark.parametrize("share", [0.25, 0.1, 0.03, 0.01, 0.001])
def test_random_positions_take_at_most_5_percent_more_than_their_entropy(share: float) -> None:
    count = 4_000_000
    kept = int(count * share)
    chosen = np.random.default_rng(3).choice(count, kept, replace=False)
    shift = shift_for(count, kept)
    high, low = encode_gaps(np.sort(chosen).astype(np.int64), shift)
    _, payload, _ = pack([Part(data=high, entropy=True), Part(data=low, entropy=False)])
    bound = (math.lgamma(count + 1) - math.lgamma(kept + 1) - math.lgamma(count - kept + 1)) / math.log(2)
    assert bound <= 8 * len(payload) <= 1.05 * bound
