import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from swarm.compress import selection
from swarm.compress.selection import SAMPLE, largest


def expected(elements: torch.Tensor, k: int) -> list[int]:
    order = sorted(range(elements.numel()), key=lambda i: (-abs(float(elements[i])), i))
    return sorted(order[:k])


@settings(max_examples=100, deadline=None)
@given(values=st.lists(st.floats(-4, 4, width=16), min_size=1, max_size=80), data=st.data())
def test_the_largest_are_chosen_and_of_equal_ones_the_first(values: list[float], data: st.DataObject) -> None:
    elements = torch.tensor(values)
    k = data.draw(st.integers(0, len(values)))
    found = largest(elements, k, seed=3)
    assert found is not None
    assert found.tolist() == expected(elements, k)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("share", [0.0001, 0.01, 0.3, 0.9999, 1.0])
def test_of_many_the_sample_changes_nothing(share: float, dtype: torch.dtype) -> None:
    count = 2 * SAMPLE + 77
    elements = torch.randn(count, generator=torch.Generator().manual_seed(1)).to(dtype)
    k = math.ceil(count * share)
    found = [largest(elements, k, seed=seed) for seed in (1, 2)]
    assert found[0] is not None
    assert found[1] is not None
    assert torch.equal(found[0], found[1])
    assert found[0].numel() == k
    chosen = torch.zeros(count, dtype=torch.bool)
    chosen[found[0]] = True
    rest = elements[~chosen].abs()
    assert not rest.numel() or elements[chosen].abs().min() >= rest.max()


def test_a_sample_that_misses_the_few_large_ones_is_drawn_from_again(monkeypatch: pytest.MonkeyPatch) -> None:
    elements = torch.zeros(4 * SAMPLE)
    elements[7] = 5.0
    elements[1000:1010] = 1.0
    passes: list[float] = []
    reaching = selection._reaching

    def counted(entries: torch.Tensor, threshold: torch.Tensor) -> torch.Tensor:
        passes.append(float(threshold))
        return reaching(entries, threshold)

    monkeypatch.setattr(selection, "_reaching", counted)
    monkeypatch.setattr(selection, "DOUBT", -1.3)  # as if luck had been bad
    for seed in range(30):
        found = largest(elements, 6, seed=seed)
        assert found is not None
        assert found.tolist() == [7, 1000, 1001, 1002, 1003, 1004]
    assert len(passes) > 30
    assert passes.count(5.0) > 0


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("count", [100, 2 * SAMPLE + 5])
def test_what_is_no_number_is_said(bad: float, count: int) -> None:
    elements = torch.randn(count)
    elements[count - 1] = bad
    assert largest(elements, 10, seed=0) is None
