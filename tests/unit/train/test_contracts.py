"""Calls that torch would make and must not: each is refused before it is made, in words."""

from typing import Any

import pytest
import torch

from swarm.train.contracts import ContractError, check_arguments, check_hidden, named
from swarm.train.contracts_values import value_check
from swarm.train.inference import infer, without_data
from swarm.train.program_arguments import resolve

CPU, CUDA = torch.device("cpu"), torch.device("cuda", 0)
LEAST = -(2**63)


def ones(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.ones(shape, dtype=dtype)


def whole(*numbers: int, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    return torch.tensor(numbers, dtype=dtype)


IMAGE = ones(2, 4, 3, 3)
LSTM_STATES = [ones(1, 2, 3), ones(1, 2, 3)]
LSTM_WEIGHTS = [ones(12, 4), ones(12, 3), ones(12), ones(12)]
LSTM_FLAGS = [0.0, False, False, False]


def refusal(name: str, *args: Any, **kwargs: Any) -> str:
    call = resolve(f"aten.{name}")
    with pytest.raises(ContractError) as found:
        check_arguments(f"aten.{name}", call, named(call, args, kwargs))
    return str(found.value)


@pytest.mark.parametrize("short", [0, 1, 3, 5])
@pytest.mark.parametrize(
    ("name", "tensors", "rest"),
    [
        ("_native_batch_norm_legit_functional.default", 4, (True, 0.1, 1e-5)),
        ("_native_batch_norm_legit_no_training.default", 4, (0.1, 1e-5)),
        ("_batch_norm_with_update_functional.default", 4, (0.1, 1e-5)),
        ("_batch_norm_no_update.default", 4, (0.1, 1e-5)),
        ("_native_batch_norm_legit.no_stats", 2, (True, 0.1, 1e-5)),
    ],
)
def test_statistics_have_one_element_a_channel(name: str, tensors: int, rest: tuple[Any, ...], short: int):
    call = resolve(f"aten.{name}")
    check_arguments(f"aten.{name}", call, named(call, [IMAGE, *[ones(4)] * tensors, *rest], {}))
    for place in range(tensors):
        given = [ones(short) if index == place else ones(4) for index in range(tensors)]
        assert "must have the shape (4,)" in refusal(name, IMAGE, *given, *rest)


@pytest.mark.parametrize(
    ("name", "args", "why"),
    [
        (
            "lstm.input",
            (ones(5, 2, 4), LSTM_STATES, LSTM_WEIGHTS[:2], True, 1, *LSTM_FLAGS),
            "other parameters",
        ),
        (
            "lstm.input",
            (ones(5, 2, 4), LSTM_STATES, LSTM_WEIGHTS, True, 2**30, *LSTM_FLAGS),
            "other parameters",
        ),
        (
            "lstm.input",
            (ones(5, 2, 4), LSTM_STATES, LSTM_WEIGHTS, True, 2**40, *LSTM_FLAGS),
            "nothing has so",
        ),
        (
            "lstm.input",
            (ones(5, 2, 4), LSTM_STATES[:1], LSTM_WEIGHTS, True, 1, *LSTM_FLAGS),
            "number of states",
        ),
        (
            "lstm.input",
            (ones(5, 2, 4), LSTM_STATES, [*LSTM_WEIGHTS[:3], ones(1)], True, 1, *LSTM_FLAGS),
            "the parameters of layer 0",
        ),
        ("gru.input", (ones(5, 2, 4), ones(1, 9, 3), LSTM_WEIGHTS, True, 1, *LSTM_FLAGS), "another shape"),
        ("matrix_power.default", (ones(2, 2), 10**6), "exponent"),
        ("linalg_matrix_power.default", (ones(2, 2), LEAST), "nothing has so many"),
        ("_upsample_bicubic2d_aa.default", (IMAGE, [6, 6], False, 1e-5, 1e-5), "a scale of 1e-05"),
        ("_upsample_bicubic2d_aa.default", (IMAGE, [6, 6], False, 0.5, 2.0), "does not make 6"),
        ("upsample_nearest2d.default", (IMAGE, [6, -6], None, None), "output size is not positive"),
        ("upsample_nearest2d.vec", (IMAGE, None, [float("nan"), 2.0]), "a scale of nan"),
        ("grid_sampler_3d.default", (ones(1, 1, 2, 2, 2), ones(1, 1, 1, 1, 3), 100, 0, True), "interpolate"),
        ("grid_sampler_2d.default", (IMAGE, ones(2, 3, 3, 2), 0, -1, True), "way to pad"),
        ("_weight_norm.default", (ones(4, 4), ones(4, 4), 1), "magnitude's shape is not [1, 4]"),
        ("mvlgamma.default", (ones(4), 2**31 - 1), "dimensions"),
        ("embedding_bag.default", (ones(4, 3), whole(1), whole(0), False, 0, False, None, True), "no bag"),
        ("_embedding_bag.default", (ones(4, 3), whole(1), whole(), False, 2), "no bag"),
        ("pdist.default", (ones(0, 4), 0.5), "no points"),
        ("one_hot.default", (whole(1, 2),), "number of classes"),
        ("view.dtype", (ones(4, dtype=torch.uint8), torch.bool), "truth values"),
        ("split.Tensor", (ones(10_000), 1), "10000 pieces"),
        ("split.Tensor", (ones(4), 0), "positive size"),
        ("unbind.int", (ones(5000, 1),), "5000 pieces"),
        ("unbind.int", (ones(3), 7), "no dimension 7"),
        ("chunk.default", (ones(4), 10**6), "1000000 pieces"),
        ("conv2d.default", (IMAGE, ones(4, 4, 2, 2), None, [1, 1], [0, 0], [1, 1], 0), "groups"),
        ("native_group_norm.default", (IMAGE, None, None, 2**20, 4, 9, 2, 1e-5), "N, C, HxW"),
        ("norm.ScalarOpt_dtype", (ones(4), 2), "dtype is of another kind"),
        ("roll.default", (ones(4), [2**62], [0]), "shifts has"),
        ("relu.default", (ones(4), 1), "arguments that it does not have"),
    ],
)
def test_what_no_kernel_checks_is_refused_in_words(name: str, args: tuple[Any, ...], why: str):
    kwargs = {"dtype": 1_000_000} if name == "norm.ScalarOpt_dtype" else {}
    assert why in refusal(name, *args, **kwargs)


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("slice.Tensor", (ones(4), 0, 1, 2**63 - 1)),
        ("masked_fill.Scalar", (whole(1), ones(1, dtype=torch.bool), LEAST)),
        ("randint.low", (0, 2**40, [2])),
        ("lstm.input", (ones(5, 2, 4), LSTM_STATES, LSTM_WEIGHTS, True, 1, *LSTM_FLAGS)),
        (
            "lstm.input",
            (
                ones(5, 2, 4),
                [ones(2, 2, 2), ones(2, 2, 3)],
                [*[ones(12, 4), ones(12, 2), ones(2, 3)] * 2],
                False,
                1,
                0.0,
                False,
                True,
                False,
            ),
        ),
        ("upsample_bilinear2d.vec", (IMAGE, None, False, [1.7, 0.6])),
        ("_upsample_bilinear2d_aa.default", (IMAGE, [5, 1], False, 1.7, 0.6)),
        ("_weight_norm.default", (ones(4, 3), ones(4, 1), 0)),
        ("split.Tensor", (ones(10), 3)),
    ],
)
def test_what_models_do_is_not_refused(name: str, args: tuple[Any, ...]):
    call = resolve(f"aten.{name}")
    check_arguments(f"aten.{name}", call, named(call, args, {}))


def test_memory_inside_of_a_call_is_in_proportion_to_its_tensors():
    check_hidden([ones(1000)], [ones(1000)], 64 * 8000 + 2**26)
    with pytest.raises(ContractError, match=r"would take \d+ bytes inside for 8000 bytes"):
        check_hidden([ones(1000)], [ones(1000)], 64 * 8000 + 2**26 + 1)


def test_a_product_of_vectors_that_would_fill_memory_is_seen_without_making_it():
    call = resolve("aten.bilinear.default")
    with without_data(), pytest.raises(ContractError, match="bytes inside"):
        infer("aten.bilinear.default", call, [ones(9999, 900), ones(9999, 900), ones(1, 900, 900), None], {})


def test_a_kernel_as_large_as_its_image_is_not_unfolded():
    call = resolve("aten.conv2d.default")
    with without_data():
        infer(
            "aten.conv2d.default", call, [ones(8, 64, 56, 56), ones(64, 64, 7, 7), None, [1, 1], [3, 3]], {}
        )
        image, kernel = ones(1, 1, 512, 512), ones(1, 1, 256, 256)
        with pytest.raises(ContractError, match="bytes inside"):
            infer("aten.conv2d.default", call, [image, kernel, None, [1, 1], [128, 128]], {})


def values(name: str, *args: Any, device: torch.device = CPU, **kwargs: Any) -> None:
    check = value_check(f"aten.{name}", device)
    assert check is not None
    check(named(resolve(f"aten.{name}"), args, kwargs))


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int8])
@pytest.mark.parametrize(
    "name",
    ["div.Tensor_mode", "divide.Tensor_mode", "floor_divide.default", "remainder.Tensor", "fmod.Tensor"],
)
def test_the_least_number_is_not_divided_by_minus_one(name: str, dtype: torch.dtype):
    least = torch.iinfo(dtype).min
    mode = {"rounding_mode": "trunc"} if "mode" in name else {}
    values(name, whole(least, 5, dtype=dtype), whole(2, 3, dtype=dtype), **mode)
    values(name, whole(4, 5, dtype=dtype), whole(-1, 3, dtype=dtype), **mode)
    with pytest.raises(ContractError, match="cannot be divided by -1"):
        values(name, whole(least, 5, dtype=dtype), whole(-1, -1, dtype=dtype), **mode)


def test_numbers_divide_like_tensors_do():
    with pytest.raises(ContractError, match="cannot be divided by -1"):
        values("div.Scalar_mode", whole(LEAST), -1, rounding_mode="floor")
    with pytest.raises(ContractError, match="cannot be divided by -1"):
        values("remainder.Scalar_Tensor", LEAST, whole(-1))
    values("div.Scalar_mode", ones(2), -1, rounding_mode="floor")
    assert value_check("aten.div.Tensor", CPU) is None


@pytest.mark.parametrize("sample", [-0.5, 1.0, 1e9, float("nan"), float("inf")])
def test_random_samples_are_fractions(sample: float):
    with pytest.raises(ContractError, match="from 0 up to"):
        values("fractional_max_pool2d.default", IMAGE, [2, 2], [2, 2], torch.full((2, 4, 2), sample))


@pytest.mark.parametrize("place", [float("nan"), float("inf")])
def test_nothing_is_sampled_at_no_place(place: float):
    values("grid_sampler_2d.default", IMAGE, ones(2, 3, 3, 2), 0, 1, True)
    with pytest.raises(ContractError, match="grid is not finite"):
        values("grid_sampler_2d.default", IMAGE, torch.full((2, 3, 3, 2), place), 0, 1, True)


@pytest.mark.parametrize("offsets", [(0, 9), (1, 2), (0, 2, 1), (0, -1)])
def test_bags_rise_from_the_first_index_and_end_with_the_last(offsets: tuple[int, ...]):
    values("_embedding_bag.default", ones(4, 3), whole(0, 1, 2), whole(0, 2))
    with pytest.raises(ContractError):
        values("_embedding_bag.default", ones(4, 3), whole(0, 1, 2), whole(*offsets))


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("embedding.default", lambda i: (ones(4, 3), i)),
        ("gather.default", lambda i: (ones(4), 0, i)),
        ("index.Tensor", lambda i: (ones(2, 4), [None, i])),
        ("index_put.default", lambda i: (ones(4), [i], ones(1))),
        ("index_select.default", lambda i: (ones(2, 4), 1, i)),
        ("scatter.value", lambda i: (ones(4), 0, i, 1.0)),
        ("take.default", lambda i: (ones(2, 2), i)),
        ("take_along_dim.default", lambda i: (ones(4), i, 0)),
        ("take_along_dim.default", lambda i: (ones(2, 2), i)),
        ("one_hot.default", lambda i: (i, 4)),
        ("nll_loss_forward.default", lambda i: (ones(1, 4), i, None, 1, -100)),
        ("cross_entropy_loss.default", lambda i: (ones(1, 4), i)),
        ("multilabel_margin_loss.default", lambda i: (ones(4), i.expand(4))),
    ],
)
def test_an_index_out_of_range_ends_one_job_and_not_all_of_a_gpu(name: str, args: Any):
    values(name, *args(whole(3)), device=CUDA)
    for index in (4, -5, 2**40):
        with pytest.raises(ContractError, match="out of range"):
            values(name, *args(whole(index)), device=CUDA)


def test_truth_values_select_and_ignored_targets_are_no_indices():
    values("index.Tensor", ones(4), [ones(4, dtype=torch.bool)], device=CUDA)
    values("nll_loss_forward.default", ones(1, 4), whole(-100), None, 1, -100, device=CUDA)
    values("cross_entropy_loss.default", ones(1, 4), ones(1, 4), device=CUDA)
