"""A call that works, of each operator that chance finds none of: hostile calls differ from it in some place.

``F`` is a tensor of floating numbers of the given shape, ``I`` one of whole numbers below the given bound.
"""

from collections.abc import Callable, Mapping
from typing import Any

Make = Callable[..., Any]
Call = tuple[list[Any], dict[str, Any]]


def examples(F: Make, I: Make, B: Make) -> Mapping[str, list[Any]]:  # noqa: N803, E741
    """Positional arguments by the operator's name without its overload, or with it where they differ."""
    image, volume, series = F(2, 4, 6, 6), F(1, 2, 4, 4, 4), F(2, 4, 8)
    square, batch = F(4, 4), F(2, 4, 4)
    channels = [F(4), F(4), F(4), F(4)]
    one, two, three = [1, 1], [2, 2], [2, 2, 2]
    cell4, cell3, cell1 = ([F(g * 3, 4), F(g * 3, 3), F(g * 3), F(g * 3)] for g in (4, 3, 1))
    flags = [True, 1, 0.0, True, False, False]
    found: dict[str, list[Any]] = {
        "conv1d": [series, F(4, 2, 3), F(4), [1], [1], [1], 2],
        "conv1d.padding": [series, F(4, 2, 3), F(4), [1], "same", [1], 2],
        "conv2d": [image, F(4, 2, 3, 3), F(4), one, one, one, 2],
        "conv2d.padding": [image, F(4, 2, 3, 3), F(4), one, "same", one, 2],
        "conv3d": [volume, F(2, 2, 2, 2, 2), F(2), [1] * 3, [1] * 3, [1] * 3, 1],
        "conv3d.padding": [volume, F(2, 2, 3, 3, 3), F(2), [1] * 3, "same", [1] * 3, 1],
        "conv_tbc": [F(6, 2, 4), F(3, 4, 5), F(5), 1],
        "conv_transpose1d": [series, F(4, 2, 3), F(4), [2], [1], [1], 2, [1]],
        "conv_transpose2d": [image, F(4, 2, 3, 3), F(4), two, one, one, 2, one],
        "conv_transpose3d": [volume, F(2, 2, 2, 2, 2), F(2), three, [1] * 3, [1] * 3, 1, [1] * 3],
        "convolution": [image, F(4, 2, 3, 3), F(4), one, one, one, False, [0, 0], 2],
        "_convolution": [
            image,
            F(4, 2, 3, 3),
            F(4),
            one,
            one,
            one,
            False,
            [0, 0],
            2,
            False,
            True,
            True,
            False,
        ],
        "im2col": [image, two, one, one, one],
        "col2im": [F(2, 16, 25), [6, 6], two, one, [0, 0], one],
        "fractional_max_pool2d": [image, two, [3, 3], F(2, 4, 2)],
        "fractional_max_pool3d": [volume, three, three, F(1, 2, 3)],
        "affine_grid_generator": [F(2, 2, 3), [2, 4, 6, 6], True],
        "grid_sampler": [image, F(2, 3, 3, 2), 0, 0, True],
        "grid_sampler_2d": [image, F(2, 3, 3, 2), 2, 1, True],
        "grid_sampler_3d": [volume, F(1, 2, 2, 2, 3), 0, 0, True],
        "_native_batch_norm_legit": [image, F(4), F(4), True, 0.1, 1e-5],
        "_native_batch_norm_legit_functional": [image, *channels, True, 0.1, 1e-5],
        "_native_batch_norm_legit_no_training": [image, *channels, 0.1, 1e-5],
        "_batch_norm_no_update": [image, *channels, 0.1, 1e-5],
        "_batch_norm_with_update_functional": [image, *channels, 0.1, 1e-5],
        "group_norm": [image, 2, F(4), F(4), 1e-5, True],
        "native_group_norm": [image, F(4), F(4), 2, 4, 36, 2, 1e-5],
        "layer_norm": [square, [4], F(4), F(4), 1e-5, True],
        "native_layer_norm": [square, [4], F(4), F(4), 1e-5],
        "rms_norm": [square, [4], F(4), 1e-5],
        "_fused_rms_norm": [square, [4], F(4), 1e-5],
        "_weight_norm": [square, F(4, 1), 0],
        "_weight_norm_interface": [square, F(4, 1), 0],
        "norm_except_dim": [square, 2, 0],
        "lstm": [F(5, 2, 4), [F(1, 2, 3), F(1, 2, 3)], cell4, *flags],
        "gru": [F(5, 2, 4), F(1, 2, 3), cell3, *flags],
        "rnn_tanh": [F(5, 2, 4), F(1, 2, 3), cell1, *flags],
        "rnn_relu": [F(5, 2, 4), F(1, 2, 3), cell1, *flags],
        "lstm_cell": [F(2, 4), [F(2, 3), F(2, 3)], *cell4],
        "gru_cell": [F(2, 4), F(2, 3), *cell3],
        "rnn_tanh_cell": [F(2, 4), F(2, 3), *cell1],
        "rnn_relu_cell": [F(2, 4), F(2, 3), *cell1],
        "embedding": [square, I(4, 5), 1, False, False],
        "embedding_bag": [F(4, 3), I(4, 6), I(1, 1), False, 0, False, None, False],
        "embedding_bag.padding_idx": [F(4, 3), I(4, 6), I(1, 2), False, 1, False, None, False, 1],
        "_embedding_bag": [F(4, 3), I(4, 6), I(1, 2), False, 2, False, None, False, -1],
        "scaled_dot_product_attention": [F(2, 2, 4, 8), F(2, 2, 6, 8), F(2, 2, 6, 8), F(4, 6), 0.0, False],
        "multi_margin_loss": [F(3, 4), I(4, 3), 1, 1.0, F(4), 1],
        "multilabel_margin_loss": [F(3, 4), I(4, 3, 4), 1],
        "multilabel_margin_loss_forward": [F(3, 4), I(4, 3, 4), 1],
        "cross_entropy_loss": [F(3, 4), I(4, 3), F(4), 1, -100, 0.1],
        "nll_loss": [F(3, 4), I(4, 3), F(4), 1, -100],
        "nll_loss_nd": [F(3, 4), I(4, 3), F(4), 1, -100],
        "nll_loss_forward": [F(3, 4), I(4, 3), F(4), 1, -100],
        "nll_loss2d": [F(3, 4, 2, 2), I(4, 3, 2, 2), F(4), 1, -100],
        "nll_loss2d_forward": [F(3, 4, 2, 2), I(4, 3, 2, 2), F(4), 1, -100],
        "cosine_embedding_loss": [F(3, 4), F(3, 4), F(3), 0.0, 1],
        "margin_ranking_loss": [F(3), F(3), F(3), 0.0, 1],
        "triplet_margin_loss": [F(3, 4), F(3, 4), F(3, 4), 1.0, 2.0, 1e-6, False, 1],
        "bilinear": [F(2, 3), F(2, 4), F(5, 3, 4), F(5)],
        "gather": [square, 0, I(4, 2, 4)],
        "scatter.src": [square, 0, I(4, 2, 4), square],
        "scatter.value": [square, 0, I(4, 2, 4), 1.0],
        "scatter.reduce": [square, 0, I(4, 2, 4), square, "add"],
        "scatter.value_reduce": [square, 0, I(4, 2, 4), 2.0, "multiply"],
        "scatter_add": [square, 0, I(4, 2, 4), square],
        "scatter_reduce": [square, 0, I(4, 2, 4), square, "amax", True],
        "index": [square, [I(4, 3), I(4, 3)]],
        "index_put": [square, [I(4, 3)], F(3, 4), True],
        "index_add": [square, 0, I(4, 2), F(2, 4)],
        "index_copy": [square, 0, I(4, 2), F(2, 4)],
        "index_fill.int_Scalar": [square, 0, I(4, 2), 1.0],
        "index_fill.int_Tensor": [square, 0, I(4, 2), F()],
        "index_reduce": [square, 0, I(4, 2), F(2, 4), "prod", True],
        "index_select": [square, 0, I(4, 2)],
        "take": [square, I(16, 3)],
        "take_along_dim": [square, I(4, 4, 4), 0],
        "put": [square, I(16, 3), F(3), True],
        "one_hot": [I(4, 3), 4],
        "masked_fill.Scalar": [square, B(4, 4), 1.0],
        "masked_fill.Tensor": [square, B(4, 4), F()],
        "masked_scatter": [square, B(4, 4), F(16)],
        "where.self": [B(4, 4), square, square],
        "nonzero_static": [B(4, 4), 5, 0],
        "searchsorted.Tensor": [F(8).sort().values, F(3)],
        "bucketize.Tensor": [F(3), F(8).sort().values],
        "histc": [F(8), 4, 0, 1],
        "multinomial": [F(3, 4), 2, True],
        "tensordot": [square, square, [0], [1]],
        "einsum": ["ij,jk->ik", [square, square]],
        "linalg_multi_dot": [[square, square, square]],
        "chain_matmul": [[square, square, square]],
        "linalg_solve_triangular": [square, square, True],
        "linalg_vecdot": [F(3), F(3)],
        "baddbmm": [batch, batch, batch],
        "addbmm": [square, batch, batch],
        "addmm": [square, square, square],
        "addmv": [F(4), square, F(4)],
        "addr": [square, F(4), F(4)],
        "bmm": [batch, batch],
        "linear": [square, F(3, 4), F(3)],
        "cdist": [F(2, 3, 4), F(2, 5, 4), 2.0, None],
        "_cdist_forward": [F(2, 3, 4), F(2, 5, 4), 1.0, None],
        "_euclidean_dist": [F(3, 4), F(5, 4)],
        "quantile": [F(8), F(2), 0, False],
        "nanquantile": [F(8), F(2), 0, False],
        "cross": [F(4, 3), F(4, 3), 1],
        "linalg_cross": [F(4, 3), F(4, 3)],
        "prelu": [image, F(4)],
        "_prelu_kernel": [image, F(1, 4, 1, 1)],
        "glu": [square, -1],
        "unfold": [F(8), 0, 3, 2],
        "unfold_copy": [F(8), 0, 3, 2],
        "channel_shuffle": [image, 2],
        "native_channel_shuffle": [image, 2],
        "pixel_shuffle": [image, 2],
        "pixel_unshuffle": [image, 2],
        "constant_pad_nd": [square, [1, 1], 0.5],
        "pad": [image, [1, 1, 1, 1], "reflect"],
        "mvlgamma": [square + 5, 2],
        "polygamma": [2, square],
        "random.from": [square, 0, 5],
        "rrelu_with_noise_functional": [square, square, 0.1, 0.3, True],
        "select_scatter": [square, F(4), 0, 1],
        "slice_scatter": [square, F(2, 4), 0, 0, 2],
        "diagonal_scatter": [square, F(4)],
        "split_with_sizes": [square, [1, 3], 0],
        "split_with_sizes_copy": [square, [1, 3], 0],
        "unsafe_split_with_sizes": [square, [1, 3], 0],
        "matrix_power": [square, 3],
        "linalg_matrix_power": [square, -2],
    }
    for dims, tensor in ((1, series), (2, image), (3, volume)):
        kernel, step, none = [2] * dims, [1] * dims, [0] * dims
        out = [2] * dims
        ending = f"{dims}d"
        found |= {
            f"avg_pool{ending}": [tensor, kernel, step, none, False, True, *([None] if dims > 1 else [])],
            f"max_pool{ending}": [tensor, kernel, step, none, step, False],
            f"max_pool{ending}_with_indices": [tensor, kernel, step, none, step, False],
            f"adaptive_avg_pool{ending}": [tensor, out],
            f"_adaptive_avg_pool{ending}": [tensor, out],
            f"adaptive_max_pool{ending}": [tensor, out],
            f"reflection_pad{ending}": [tensor, [1] * 2 * dims],
            f"replication_pad{ending}": [tensor, [1] * 2 * dims],
        }
        wide = [2 * size for size in tensor.shape[2:]]
        for kind in ("upsample_nearest", "_upsample_nearest_exact"):
            found[f"{kind}{ending}"] = [tensor, wide, *[2.0] * dims]
            found[f"{kind}{ending}.vec"] = [tensor, None, [2.0] * dims]
    for name, tensor in (
        ("upsample_linear1d", series),
        ("upsample_bilinear2d", image),
        ("upsample_bicubic2d", image),
        ("_upsample_bilinear2d_aa", image),
        ("_upsample_bicubic2d_aa", image),
        ("upsample_trilinear3d", volume),
    ):
        dims = tensor.dim() - 2
        found[name] = [tensor, [2 * size for size in tensor.shape[2:]], False, *[2.0] * dims]
        found[f"{name}.vec"] = [tensor, None, False, [2.0] * dims]
    return found
