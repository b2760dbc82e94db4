"""The operators that peers run for each other: the allow-list of the executor (decision D4).

Every name is an ATen overload without its ``aten.`` prefix. All are functional: they write to none of their
inputs, read no file, no clock and no memory but the elements of their inputs, check their indices, and
compute only from their arguments (those in :data:`RANDOM` also from the generator that the executor seeds).
A graph with any other operator is refused by whoever would run it. Data types that do not travel (complex,
quantized, sparse) have no operators here. The list is plain data, so that planning needs no torch.

What they must be given, where torch does not look, is in ``swarm.train.contracts``. Not here are operators
that reach beyond their inputs in more ways than one can check (``ctc_loss``), whose outputs' shapes depend on
the elements of tensors, or that have no deterministic form.
"""

import hashlib
from typing import Final

from swarm.ids import Digest, base32

_SOURCES = """
arange.default arange.start arange.start_step eye.default eye.m full.default full_like.default
linspace.default logspace.default new_full.default new_ones.default new_zeros.default ones.default
ones_like.default scalar_tensor.default tril_indices.default triu_indices.default zeros.default
zeros_like.default bartlett_window.default blackman_window.default hamming_window.default
hann_window.default kaiser_window.default
"""
"""Made from numbers or from the shape of a tensor."""

_RANDOM = """
alpha_dropout.default bernoulli.default bernoulli.p bernoulli.Tensor cauchy.default
dropout.default exponential.default feature_alpha_dropout.default feature_dropout.default
geometric.default gru.input log_normal.default lstm.input multinomial.default native_dropout.default
normal.Tensor_Tensor normal.Tensor_float normal.float_Tensor normal.float_float normal_functional.default
poisson.default rand.default rand_like.default randint.default randint.low randint_like.default
randint_like.low_dtype randn.default randn_like.default random.default random.from random.to
randperm.default rnn_relu.input rnn_tanh.input rrelu.default rrelu_with_noise_functional.default
scaled_dot_product_attention.default uniform.default
"""
"""May draw random numbers; whether one does is ``Operator.random``, for some draw only with dropout on."""

_VIEWS = """
alias.default broadcast_to.default chunk.default contiguous.default detach.default diagonal.default
expand.default expand_as.default flatten.using_ints mT.default movedim.int movedim.intlist narrow.default
numpy_T.default permute.default positive.default ravel.default reshape.default reshape_as.default
select.int slice.Tensor split.Tensor split.sizes split_with_sizes.default squeeze.default squeeze.dim
squeeze.dims swapaxes.default swapdims.default t.default tensor_split.indices tensor_split.sections
to.device to.dtype to.other transpose.int unbind.int unflatten.int unfold.default unsqueeze.default
view.default view.dtype view_as.default
"""
"""Outputs share their input's memory (some only where they can): they cost nothing."""

_COPIES = """
_to_copy.default _unsafe_view.default block_diag.default broadcast_tensors.default cartesian_prod.default
cat.default clone.default column_stack.default concat.default
constant_pad_nd.default copy.default diag.default diag_embed.default diagflat.default dstack.default
fill.Scalar fill.Tensor flip.default fliplr.default flipud.default hstack.default lift_fresh_copy.default
meshgrid.default meshgrid.indexing pad.default reflection_pad1d.default reflection_pad2d.default
reflection_pad3d.default repeat.default repeat_interleave.self_int replication_pad1d.default
replication_pad2d.default replication_pad3d.default roll.default rot90.default stack.default tile.default
type_as.default tril.default triu.default unsafe_chunk.default unsafe_split.Tensor
unsafe_split_with_sizes.default vander.default vstack.default zero.default pixel_shuffle.default
pixel_unshuffle.default channel_shuffle.default native_channel_shuffle.default expand_copy.default
permute_copy.default select_copy.int slice_copy.Tensor squeeze_copy.default squeeze_copy.dim
squeeze_copy.dims transpose_copy.int unsqueeze_copy.default view_copy.default detach_copy.default
alias_copy.default diagonal_copy.default split_copy.Tensor split_with_sizes_copy.default unbind_copy.int
unfold_copy.default t_copy.default
"""
"""Move elements, or change their type."""

_SCATTERS = """
diagonal_scatter.default embedding.default gather.default index.Tensor index_add.default
index_copy.default index_fill.int_Scalar index_fill.int_Tensor index_put.default index_reduce.default
index_select.default masked_fill.Scalar masked_fill.Tensor masked_scatter.default nonzero_static.default
one_hot.default put.default scatter.reduce scatter.src scatter.value scatter.value_reduce
scatter_add.default scatter_reduce.two select_scatter.default slice_scatter.default take.default
take_along_dim.default embedding_bag.default embedding_bag.padding_idx _embedding_bag.default
"""
"""Read and write by index."""

_ARITHMETIC = """
abs.default absolute.default add.Scalar add.Tensor addcdiv.default addcmul.default ceil.default
clamp.Tensor clamp.default clamp_max.Tensor clamp_max.default clamp_min.Tensor clamp_min.default
clip.Tensor clip.default copysign.Scalar copysign.Tensor div.Scalar div.Scalar_mode div.Tensor
div.Tensor_mode divide.Scalar divide.Scalar_mode divide.Tensor divide.Tensor_mode fix.default
float_power.Scalar float_power.Tensor_Scalar float_power.Tensor_Tensor floor.default floor_divide.Scalar
floor_divide.default fmax.default fmin.default fmod.Scalar fmod.Tensor frac.default gcd.default
heaviside.default hypot.default lcm.default ldexp.Tensor lerp.Scalar lerp.Tensor maximum.default
minimum.default max.other min.other mul.Scalar mul.Tensor multiply.Scalar multiply.Tensor
nan_to_num.default neg.default negative.default nextafter.default pow.Scalar pow.Tensor_Scalar
pow.Tensor_Tensor reciprocal.default remainder.Scalar remainder.Scalar_Tensor remainder.Tensor
round.decimals round.default rsqrt.default rsub.Scalar rsub.Tensor sgn.default sign.default sqrt.default
square.default sub.Scalar sub.Tensor subtract.Scalar subtract.Tensor true_divide.Scalar
true_divide.Tensor trunc.default xlogy.Scalar_Other xlogy.Scalar_Self xlogy.Tensor
"""

_TRANSCENDENTAL = """
acos.default acosh.default arccos.default arccosh.default arcsin.default arcsinh.default arctan.default
arctan2.default arctanh.default asin.default asinh.default atan.default atan2.default atanh.default
cos.default cosh.default deg2rad.default digamma.default erf.default erfc.default erfinv.default
exp.default exp2.default expm1.default i0.default igamma.default igammac.default lgamma.default
log.default log10.default log1p.default log2.default logaddexp.default logaddexp2.default logit.default
mvlgamma.default polygamma.default rad2deg.default sin.default sinc.default sinh.default
special_bessel_j0.default special_bessel_j1.default special_entr.default special_erfcx.default
special_i0e.default special_i1.default special_i1e.default special_log_ndtr.default special_ndtr.default
special_ndtri.default special_xlog1py.default special_zeta.default tan.default tanh.default
"""

_ACTIVATIONS = """
celu.default elu.default gelu.default glu.default hardshrink.default hardsigmoid.default
hardswish.default hardtanh.default leaky_relu.default log_sigmoid.default log_sigmoid_forward.default
mish.default prelu.default _prelu_kernel.default relu.default relu6.default selu.default sigmoid.default
silu.default softplus.default softshrink.default threshold.default log_softmax.int softmax.int
_log_softmax.default _softmax.default _safe_softmax.default
"""

_COMPARISONS = """
bitwise_and.Scalar bitwise_and.Scalar_Tensor bitwise_and.Tensor bitwise_left_shift.Scalar_Tensor
bitwise_left_shift.Tensor bitwise_left_shift.Tensor_Scalar bitwise_not.default bitwise_or.Scalar
bitwise_or.Scalar_Tensor bitwise_or.Tensor bitwise_right_shift.Scalar_Tensor bitwise_right_shift.Tensor
bitwise_right_shift.Tensor_Scalar bitwise_xor.Scalar bitwise_xor.Scalar_Tensor bitwise_xor.Tensor
bucketize.Scalar bucketize.Tensor eq.Scalar eq.Tensor ge.Scalar ge.Tensor greater.Scalar greater.Tensor
greater_equal.Scalar greater_equal.Tensor gt.Scalar gt.Tensor isclose.default isfinite.default
isin.Scalar_Tensor isin.Tensor_Scalar isin.Tensor_Tensor isinf.default isnan.default isneginf.default
isposinf.default isreal.default le.Scalar le.Tensor less.Scalar less.Tensor less_equal.Scalar
less_equal.Tensor logical_and.default logical_not.default logical_or.default logical_xor.default
lt.Scalar lt.Tensor ne.Scalar ne.Tensor not_equal.Scalar not_equal.Tensor searchsorted.Scalar
searchsorted.Tensor signbit.default where.Scalar where.ScalarOther where.ScalarSelf where.self
__and__.Scalar __and__.Tensor __or__.Scalar __or__.Tensor __xor__.Scalar __xor__.Tensor __lshift__.Scalar
__lshift__.Tensor __rshift__.Scalar __rshift__.Tensor
"""

_REDUCTIONS = """
all.default all.dim all.dims amax.default amin.default aminmax.default any.default any.dim any.dims
argmax.default argmin.default argsort.default argsort.stable count_nonzero.default
count_nonzero.dim_IntList cummax.default cummin.default cumprod.default cumsum.default diff.default
dist.default histc.default kthvalue.default logcumsumexp.default logsumexp.default max.default max.dim
mean.default mean.dim median.default median.dim min.default min.dim mode.default msort.default
nanmean.default nanmedian.default nanmedian.dim nansum.default norm.Scalar norm.ScalarOpt_dim
norm.ScalarOpt_dim_dtype norm.ScalarOpt_dtype norm_except_dim.default prod.default prod.dim_int
quantile.default quantile.scalar nanquantile.default nanquantile.scalar renorm.default sort.default
sort.stable std.correction std.default std.dim std_mean.correction std_mean.default std_mean.dim
sum.default sum.dim_IntList sum_to_size.default topk.default trace.default trapezoid.dx trapezoid.x
cumulative_trapezoid.dx cumulative_trapezoid.x var.correction var.default var.dim var_mean.correction
var_mean.default var_mean.dim
"""

_PRODUCTS = """
_euclidean_dist.default addbmm.default addmm.default addmv.default addr.default baddbmm.default
bilinear.default bmm.default cdist.default _cdist_forward.default chain_matmul.default cholesky.default
cholesky_inverse.default cholesky_solve.default cosine_similarity.default
cross.default det.default dot.default einsum.default ger.default inner.default inverse.default
kron.default linalg_cholesky_ex.default linalg_cross.default linalg_det.default linalg_inv.default
linalg_inv_ex.default linalg_matmul.default linalg_matrix_exp.default linalg_matrix_norm.default
linalg_matrix_power.default linalg_multi_dot.default linalg_norm.default linalg_qr.default
linalg_slogdet.default linalg_solve.default linalg_solve_triangular.default linalg_svdvals.default
linalg_vecdot.default linalg_vector_norm.default linear.default logdet.default matmul.default
matrix_exp.default matrix_power.default mm.default mv.default outer.default pairwise_distance.default
pdist.default slogdet.default tensordot.default triangular_solve.default vdot.default
"""

_CONVOLUTIONS = """
col2im.default conv1d.default conv1d.padding conv2d.default conv2d.padding conv3d.default conv3d.padding
conv_tbc.default conv_transpose1d.default conv_transpose2d.input conv_transpose3d.input
convolution.default _convolution.default im2col.default adaptive_avg_pool1d.default
adaptive_avg_pool2d.default adaptive_avg_pool3d.default _adaptive_avg_pool2d.default
_adaptive_avg_pool3d.default adaptive_max_pool1d.default adaptive_max_pool2d.default
adaptive_max_pool3d.default avg_pool1d.default avg_pool2d.default avg_pool3d.default max_pool1d.default
max_pool1d_with_indices.default max_pool2d.default max_pool2d_with_indices.default max_pool3d.default
max_pool3d_with_indices.default fractional_max_pool2d.default
fractional_max_pool3d.default affine_grid_generator.default grid_sampler.default grid_sampler_2d.default
grid_sampler_3d.default upsample_bicubic2d.default upsample_bicubic2d.vec upsample_bilinear2d.default
upsample_bilinear2d.vec upsample_linear1d.default upsample_linear1d.vec upsample_nearest1d.default
upsample_nearest1d.vec upsample_nearest2d.default upsample_nearest2d.vec upsample_nearest3d.default
upsample_nearest3d.vec upsample_trilinear3d.default upsample_trilinear3d.vec
_upsample_nearest_exact1d.default _upsample_nearest_exact1d.vec _upsample_nearest_exact2d.default
_upsample_nearest_exact2d.vec _upsample_nearest_exact3d.default _upsample_nearest_exact3d.vec
_upsample_bilinear2d_aa.default _upsample_bilinear2d_aa.vec _upsample_bicubic2d_aa.default
_upsample_bicubic2d_aa.vec
"""
"""Convolution, pooling and resampling."""

_NORMALISATIONS = """
_native_batch_norm_legit.no_stats _native_batch_norm_legit_functional.default
_native_batch_norm_legit_no_training.default _batch_norm_no_update.default
_batch_norm_with_update_functional.default group_norm.default layer_norm.default
native_group_norm.default native_layer_norm.default rms_norm.default
_fused_rms_norm.default _weight_norm.default _weight_norm_interface.default
"""

_RECURRENT = """
gru_cell.default lstm_cell.default rnn_relu_cell.default rnn_tanh_cell.default
"""
"""One step at a time; whole sequences are among the random ones, because they can drop out between layers."""

_LOSSES = """
binary_cross_entropy.default binary_cross_entropy_with_logits.default cosine_embedding_loss.default
cross_entropy_loss.default
hinge_embedding_loss.default huber_loss.default kl_div.default l1_loss.default
margin_ranking_loss.default mse_loss.default multi_margin_loss.default multilabel_margin_loss.default
multilabel_margin_loss_forward.default nll_loss.default nll_loss2d.default nll_loss2d_forward.default
nll_loss_forward.default nll_loss_nd.default poisson_nll_loss.default smooth_l1_loss.default
soft_margin_loss.default triplet_margin_loss.default
"""


def _full_names(*families: str) -> frozenset[str]:
    return frozenset(f"aten.{name}" for family in families for name in family.split())


RANDOM: Final = _full_names(_RANDOM)
"""Operators that may draw from the seeded generator."""

VIEWS: Final = _full_names(_VIEWS)
"""Operators whose outputs may alias an input: no arithmetic, and no memory of their own where they do."""

SOURCES: Final = _full_names(_SOURCES)
"""Operators whose output depends on no element of any tensor."""

ALLOWED: Final = (
    RANDOM
    | VIEWS
    | SOURCES
    | _full_names(
        _COPIES,
        _SCATTERS,
        _ARITHMETIC,
        _TRANSCENDENTAL,
        _ACTIVATIONS,
        _COMPARISONS,
        _REDUCTIONS,
        _PRODUCTS,
        _CONVOLUTIONS,
        _NORMALISATIONS,
        _RECURRENT,
        _LOSSES,
    )
)
"""Every operator that a graph may name, as ``aten.name.overload``."""


def operators_digest() -> Digest:
    """SHA-256 of the sorted names: equal on peers that run the same operators."""
    return Digest(base32(hashlib.sha256("\n".join(sorted(ALLOWED)).encode()).digest()))
