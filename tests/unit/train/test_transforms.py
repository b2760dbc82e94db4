"""Transforms: seeded by (step, sample), whoever asks in what order, and by the formulas that they name."""

import numpy as np
import pytest

from swarm.errors import MisuseError
from swarm.train.transforms import (
    Draw,
    Noise,
    Normalize,
    RandomCrop,
    RandomHorizontalFlip,
    for_evaluation,
    in_order,
    transformed,
)

IMAGES = np.arange(6 * 2 * 5 * 4, dtype=np.float32).reshape(6, 2, 5, 4) + 1
RANDOM = (RandomCrop(padding=2), RandomHorizontalFlip(p=0.5), Noise(std=0.1))


def draw(*samples: int, step: int = 3, field: int = 0) -> Draw:
    return Draw(seed=7, step=step, samples=np.asarray(samples), field=field)


def test_a_sample_is_drawn_by_step_and_index_whatever_micro_batch_it_is_in():
    together = transformed(IMAGES, RANDOM, draw(*range(6)))
    for sample in range(6):
        alone = transformed(IMAGES[sample : sample + 1], RANDOM, draw(sample))
        assert np.array_equal(alone[0], together[sample])
    assert not np.array_equal(together, transformed(IMAGES, RANDOM, draw(*range(6), step=4)))


def test_crops_and_flips_are_windows_of_the_padded_image_and_mirrors():
    cropped = transformed(IMAGES, (RandomCrop(padding=2),), draw(*range(6)))
    for before, after in zip(np.pad(IMAGES, ((0, 0), (0, 0), (2, 2), (2, 2))), cropped, strict=True):
        windows = [before[:, y : y + 5, x : x + 4] for y in range(5) for x in range(5)]
        assert any(np.array_equal(after, window) for window in windows)
    assert np.array_equal(
        transformed(IMAGES, (RandomHorizontalFlip(p=1.0),), draw(*range(6))), IMAGES[..., ::-1]
    )
    assert np.array_equal(transformed(IMAGES, (RandomHorizontalFlip(p=0.0),), draw(*range(6))), IMAGES)


def test_an_image_and_its_mask_are_cut_alike_and_have_noise_of_their_own():
    both = [transformed(IMAGES, RANDOM[:2], draw(*range(6), field=field)) for field in (0, 1)]
    assert np.array_equal(*both)
    noise = [transformed(IMAGES, RANDOM[2:], draw(*range(6), field=field)) - IMAGES for field in (0, 1)]
    assert not np.array_equal(*noise)
    assert 0.05 < float(noise[0].std()) < 0.2


def test_bytes_are_normalised_by_channel_in_float32_and_held_out_ones_too():
    normalize = Normalize(mean=(1.0, 2.0), std=(2.0, 4.0))
    found = transformed(IMAGES.astype(np.uint8), (normalize,), draw(*range(6)))
    assert found.dtype == np.float32
    assert np.array_equal(found[:, 1], (IMAGES[:, 1].astype(np.uint8).astype(np.float32) - 2) / 4)
    assert for_evaluation((RANDOM, (*RANDOM, normalize))) == ((), (normalize,))


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ([], "transforms are a mapping"),
        ({2: RANDOM}, "given for field 2, and samples have 0, 1"),
        ({0: [RandomCrop(padding=1)]}, "are a tuple of at most 16"),
        ({0: (str,)}, r"are RandomCrop\(...\), RandomHorizontalFlip"),
        ({1: (RandomCrop(padding=1),)}, "RandomCrop: it needs items of"),
        ({1: (Noise(std=1.0),)}, "Noise: it needs floating-point numbers, and not int64"),
        ({0: (RandomCrop(padding=0),)}, "RandomCrop: Expected `int` >= 1"),
        ({0: (Normalize(mean=(0.0,) * 3, std=(1.0,) * 3),)}, r"items of shape \[2, 5, 4\] have not 3"),
        ({0: (Normalize(mean=(0.0,), std=(0.0,)),)}, "none of which is 0"),
    ],
)
def test_what_does_not_fit_is_refused_with_one_line(given: object, complaint: str):
    with pytest.raises(MisuseError, match=complaint):
        in_order(given, (0, 1), (("float32", (2, 5, 4)), ("int64", ())))
