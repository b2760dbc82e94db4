"""Windows over a text are what a model of the next token reads, and its loss is the cross-entropy of that."""

import math

import numpy as np
import pytest
import torch

from swarm.errors import MisuseError
from swarm.train.text import next_token_loss, windows


def test_targets_are_the_text_one_token_later_and_what_is_left_at_the_end_is_left_out() -> None:
    inputs, targets = windows(b"abcdefghi", 4)
    assert [row.tobytes() for row in inputs] == [b"abcd", b"efgh"]
    assert [row.tobytes() for row in targets] == [b"bcde", b"fghi"]
    assert inputs.dtype == np.uint8
    inputs, _ = windows(b"abcdefgh", 4)
    assert [row.tobytes() for row in inputs] == [b"abcd"]


def test_tokens_of_a_larger_vocabulary_keep_their_type() -> None:
    inputs, targets = windows(np.arange(50_000, 50_007, dtype=np.uint16), 3)
    assert (inputs.dtype, targets.dtype) == (np.uint16, np.uint16)
    assert targets.tolist() == [[50_001, 50_002, 50_003], [50_004, 50_005, 50_006]]


@pytest.mark.parametrize(("tokens", "context"), [(b"abcd", 4), (b"", 1), (b"abcd", 0), (np.zeros((4, 4)), 2)])
def test_a_text_without_a_window_is_refused(tokens: bytes, context: int) -> None:
    with pytest.raises(MisuseError, match=f"^windows of {context} tokens need one row of more than that"):
        windows(tokens, context)


def test_the_loss_of_certainty_is_none_and_of_ignorance_the_logarithm_of_the_vocabulary() -> None:
    targets = torch.tensor([[1, 0], [2, 1]], dtype=torch.uint8)
    assert next_token_loss(torch.zeros(2, 2, 3), targets).item() == pytest.approx(math.log(3))
    certain = torch.nn.functional.one_hot(targets.long(), 3) * 100.0
    assert next_token_loss(certain, targets).item() == pytest.approx(0.0, abs=1e-6)
