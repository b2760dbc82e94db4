"""Floating-point operations of each operator, forward and backward, from shapes alone.

A multiplication with its addition counts 2, as everywhere in the field. Products, convolutions and attention
have their formula; special functions count ``SPECIAL`` an element, whatever is left one an element, views
nothing. That orders the parts of a model; how fast a device runs each kind is measured, not counted.
"""

import math
from collections.abc import Callable, Mapping
from typing import Final

from swarm.graph.operators import VIEWS
from swarm.schedule.calls import Call, elements, names, saturated, size

SPECIAL: Final = 10.0
"""Operations an element of exp, erf, tanh, a division, a square root and what is made of them."""

_ATTENTION_BACKWARD: Final = 2.5
"""Two products forward, five backward, one of them again the scores (Dao et al. 2022, FlashAttention)."""

_SPECIAL_NAMES: Final = names("""
    acos acosh arccos arccosh arcsin arcsinh arctan arctan2 arctanh asin asinh atan atan2 atanh cos cosh
    digamma erf erfc erfinv exp exp2 expm1 i0 igamma igammac lgamma log log10 log1p log2 logaddexp
    logaddexp2 logit mvlgamma polygamma sin sinc sinh special_bessel_j0 special_bessel_j1 special_entr
    special_erfcx special_i0e special_i1 special_i1e special_log_ndtr special_ndtr special_ndtri
    special_xlog1py special_zeta tan tanh pow float_power rsqrt sqrt reciprocal xlogy hypot celu elu gelu
    glu hardswish log_sigmoid log_sigmoid_forward mish selu sigmoid silu softplus log_softmax softmax
    _log_softmax _softmax _safe_softmax logsumexp logcumsumexp _native_batch_norm_legit
    _native_batch_norm_legit_functional _native_batch_norm_legit_no_training _batch_norm_no_update
    _batch_norm_with_update_functional group_norm layer_norm native_group_norm native_layer_norm rms_norm
    _fused_rms_norm _weight_norm _weight_norm_interface cross_entropy_loss binary_cross_entropy
    binary_cross_entropy_with_logits kl_div soft_margin_loss poisson_nll_loss cosine_similarity
    cosine_embedding_loss dropout native_dropout
""")


def forward_flops(call: Call) -> float:
    """Operations of one execution."""
    product = product_flops(call)
    if product is not None:
        return product
    if call.operator.target in VIEWS:
        return 0.0
    return saturated(call.touched_elements() * (SPECIAL if call.name in _SPECIAL_NAMES else 1.0))


def backward_flops(call: Call) -> float:
    """Operations of its gradients: a product costs once more for each operand that needs a gradient."""
    if not call.trained:
        return 0.0
    forward = forward_flops(call)
    if call.name == "scaled_dot_product_attention":
        return saturated(_ATTENTION_BACKWARD * forward)
    if product_flops(call) is not None:
        return saturated(
            forward * sum(call.value(v).differentiable for v in call.inputs if _is_operand(call, v))
        )
    if call.name == "embedding":
        weight = call.tensor(0)  # its dense gradient is filled with zeros first
        return saturated(forward + (elements(weight) if weight is not None else 0.0))
    return forward


def product_flops(call: Call) -> float | None:
    """Operations of a product, convolution, attention or recurrent operator; None for any other."""
    rule = _PRODUCTS.get(call.name)
    return None if rule is None else saturated(rule(call))


def _is_operand(call: Call, value: int) -> bool:
    """Whether a product multiplies this input, which it does with all but biases."""
    if call.name in _BIAS_FIRST:
        return value != call.argument(0)
    return len(call.graph.values[value].spec.shape) > 1 or call.name in _OF_VECTORS


def _inner(position: int) -> Callable[[Call], float]:
    """Products that sum over the last dimension of the argument at ``position``."""

    def flops(call: Call) -> float:
        left = call.tensor(position)
        return 2.0 * call.made_elements() * (size(left, -1) if left is not None else 1.0)

    return flops


def _dot(call: Call) -> float:
    return 2.0 * max((elements(call.value(value).spec) for value in call.inputs), default=0.0)


def _convolution(call: Call) -> float:
    """Each output element sums over one filter: the weight's elements for one output channel."""
    weight = call.tensor(1)
    if weight is None:
        return call.made_elements()
    return 2.0 * call.made_elements() * elements(weight) / max(size(weight, 0), 1.0)


def _transposed(call: Call) -> float:
    """Each input element is multiplied with one filter: the weight's elements for one input channel."""
    image, weight = call.tensor(0), call.tensor(1)
    if image is None or weight is None:
        return call.made_elements()
    return 2.0 * elements(image) * elements(weight) / max(size(weight, 0), 1.0)


def _either_convolution(call: Call) -> float:
    """``convolution``, whose seventh argument says whether it is transposed."""
    flag = call.operator.args[6] if len(call.operator.args) > 6 else None
    return _transposed(call) if getattr(flag, "value", False) is True else _convolution(call)


def _attention(call: Call) -> float:
    """Scores of queries (..., T, E) and keys (..., S, E), and their products with values (..., S, V)."""
    query, key, value = call.tensor(0), call.tensor(1), call.tensor(2)
    if query is None or key is None or value is None:
        return call.made_elements()
    rows = elements(query) / max(size(query, -1), 1.0)
    return 2.0 * rows * size(key, -2) * (size(query, -1) + size(value, -1))


def _recurrent(call: Call) -> float:
    """Every weight matrix is multiplied with the input of every time step and sample."""
    sequence = call.tensor(0)
    weights = [weight for position in (2, 3) for weight in call.listed(position)]
    if sequence is None:
        return call.made_elements()
    steps = elements(sequence) / max(size(sequence, -1), 1.0)
    return 2.0 * steps * sum(elements(weight) for weight in weights if len(weight.shape) > 1)


def _cell(call: Call) -> float:
    """Both weight matrices of a cell are multiplied with one row a sample."""
    sample = call.tensor(0)
    specs = (call.value(value) for value in call.inputs)
    weights = sum(elements(v.spec) for v in specs if v.kind == "parameter" and len(v.spec.shape) > 1)
    return 2.0 * weights * (size(sample, 0) if sample is not None else 1.0)


def _einsum(call: Call) -> float:
    """The product of the sizes of all letters, for each product of two operands."""
    sizes: dict[str, float] = {}
    terms = call.text(0).replace(" ", "").split("->")[0].split(",")
    operands = call.listed(1)
    for term, operand in zip(terms, operands, strict=False):
        for letter, length in zip(term, operand.shape, strict=False):
            sizes[letter] = float(length)
    return 2.0 * max(len(operands) - 1, 1) * math.prod(sizes.values())


def _square(call: Call) -> float:
    """Factorisations and inverses of (..., n, n) matrices: about n operations an element."""
    matrix = call.tensor(0)
    return call.made_elements() if matrix is None else 2.0 * elements(matrix) * size(matrix, -1)


_BIAS_FIRST: Final = frozenset({"addmm", "addbmm", "baddbmm", "addmv", "addr"})
_OF_VECTORS: Final = frozenset({"mv", "dot", "vdot", "linalg_vecdot", "inner"})

_PRODUCTS: Final[Mapping[str, Callable[[Call], float]]] = {
    **dict.fromkeys(("linear", "mm", "bmm", "matmul", "linalg_matmul", "mv", "inner"), _inner(0)),
    **dict.fromkeys(("tensordot",), _inner(0)),
    **dict.fromkeys(("addmm", "addbmm", "baddbmm", "addmv"), _inner(1)),
    **dict.fromkeys(("dot", "vdot", "linalg_vecdot"), _dot),
    **dict.fromkeys(("conv1d", "conv2d", "conv3d"), _convolution),
    **dict.fromkeys(("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), _transposed),
    **dict.fromkeys(("convolution", "_convolution"), _either_convolution),
    **dict.fromkeys(("lstm", "gru", "rnn_tanh", "rnn_relu"), _recurrent),
    **dict.fromkeys(("lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell"), _cell),
    **dict.fromkeys(
        (
            "cholesky", "cholesky_inverse", "cholesky_solve", "det", "inverse", "linalg_cholesky_ex",
            "linalg_det", "linalg_inv", "linalg_inv_ex", "linalg_matrix_exp", "linalg_qr", "linalg_slogdet",
            "linalg_solve", "linalg_solve_triangular", "linalg_svdvals", "logdet", "matrix_exp", "slogdet",
        ),
        _square,
    ),
    "scaled_dot_product_attention": _attention,
    "einsum": _einsum,
}  # fmt: skip
"""Rules by name of the operator."""
