"""What autograd keeps of each operator from its forward until its backward.

The rules follow the derivative formulas of ATen: a product keeps each factor that another's gradient needs,
some functions keep their result, sums and copies keep nothing. Operators without a rule keep what they
read, which is never too little for a pointwise function.
"""

from dataclasses import dataclass
from typing import Final

from swarm.graph.operators import VIEWS
from swarm.ids import ValueId
from swarm.schedule.calls import Call, elements, names, saturated, size
from swarm.schedule.flops import product_flops
from swarm.wire.tensors import FLOATING, ITEM_BYTES

_NOTHING: Final = names("""
    broadcast_tensors add sub subtract rsub neg negative sum mean cat concat stack hstack vstack dstack
    column_stack clone copy lift_fresh_copy _to_copy _unsafe_view repeat tile roll flip fliplr flipud rot90
    pad constant_pad_nd reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d
    replication_pad2d replication_pad3d fill zero tril triu diag diag_embed expand_copy permute_copy
    select_copy slice_copy squeeze_copy transpose_copy unsqueeze_copy view_copy detach_copy alias_copy
    t_copy avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d
    _adaptive_avg_pool2d _adaptive_avg_pool3d pixel_shuffle pixel_unshuffle channel_shuffle
    upsample_nearest1d upsample_nearest2d upsample_nearest3d upsample_bilinear2d upsample_linear1d
    upsample_trilinear3d upsample_bicubic2d cumsum trace floor ceil round trunc sign dropout native_dropout
    cross_entropy_loss
""")
_RESULT: Final = names("""
    relu relu6 sigmoid tanh exp exp2 expm1 sqrt rsqrt reciprocal softmax log_softmax _softmax _log_softmax
    _safe_softmax tan
""")
_BOTH: Final = names("""
    scaled_dot_product_attention logsumexp logcumsumexp prod cumprod norm linalg_vector_norm linalg_norm
    linalg_inv linalg_solve linalg_qr lstm gru rnn_tanh rnn_relu lstm_cell gru_cell rnn_tanh_cell
    rnn_relu_cell
""")
_FACTORS: Final = frozenset({"mul", "multiply"})
_INDICES: Final = names("""
    embedding gather index index_select take take_along_dim index_add index_put scatter scatter_add
    masked_fill where
""")
"""They keep what is no floating-point number: indices, masks, conditions."""

_RECURRENT: Final = {"lstm": 17.0, "gru": 8.5, "rnn_tanh": 2.5, "rnn_relu": 2.5}
"""Tensors of the size of its output that each layer of a recurrent operator keeps, its output among them:
gates and states, as torch's kernels for the CPU have them."""

_LAYERS_POSITION: Final = 4
"""Of the number of layers among a recurrent operator's arguments."""
_BOTH_WAYS_POSITION: Final = 7
"""Of whether it runs in both directions."""

_WORKSPACE: Final = 7 * 4096.0
"""Bytes that an LSTM keeps for each layer and direction at least: oneDNN has seven parts, of whole pages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What one execution leaves for its backward."""

    values: tuple[ValueId, ...]
    """Values of the graph whose memory must stay; parameters among them cost nothing more."""
    hidden: float
    """Bytes of tensors that are no values of the graph: masks, statistics, probabilities."""


def kept(call: Call) -> Kept:
    """What the operator keeps; nothing where no gradient flows back through it."""
    if not call.trained:
        return Kept(values=(), hidden=0.0)
    return Kept(values=tuple(dict.fromkeys(_kept_values(call))), hidden=saturated(_hidden(call)))


def _kept_values(call: Call) -> list[ValueId]:
    name = call.name
    if call.operator.target in VIEWS or name in _NOTHING:
        return []
    if name in _RESULT:
        return list(call.outputs)
    if name in _BOTH:
        return [*call.inputs, *call.outputs]
    if name in _INDICES:
        return [value for value in call.inputs if call.value(value).spec.dtype not in FLOATING]
    if name in _FACTORS or product_flops(call) is not None:
        return [value for value in call.inputs if _another_trained(call, value)]
    return list(call.inputs)


def _another_trained(call: Call, value: ValueId) -> bool:
    """Whether another factor needs a gradient; so does a factor that is multiplied with itself."""
    others = [other for other in call.inputs if other != value] or [value]
    return any(call.value(other).differentiable for other in others)


def _hidden(call: Call) -> float:
    made = sum(elements(call.value(v).spec) * ITEM_BYTES[call.value(v).spec.dtype] for v in call.outputs)
    match call.name:
        case "dropout" | "native_dropout":
            return made
        case "cross_entropy_loss":
            logits = call.tensor(0)
            return 0.0 if logits is None else elements(logits) * ITEM_BYTES[logits.dtype]
        case "max_pool1d" | "max_pool2d" | "max_pool3d":
            return call.made_elements() * ITEM_BYTES["int64"]
        case "scaled_dot_product_attention":
            return _probabilities(call)
        case "lstm" | "gru" | "rnn_tanh" | "rnn_relu":
            layers = recurrent_layers(call)
            directions = 2.0 if call.number(_BOTH_WAYS_POSITION) else 1.0
            least = layers * directions * _WORKSPACE if call.name == "lstm" else 0.0
            return max(layers * _RECURRENT[call.name] * made - made, least)
        case _:
            return 0.0


def recurrent_layers(call: Call) -> float:
    """Layers of a recurrent operator."""
    return max(call.number(_LAYERS_POSITION), 1.0)


def _probabilities(call: Call) -> float:
    """Attention keeps one number a row; where it drops out, the probabilities before and after as well."""
    query, key = call.tensor(0), call.tensor(1)
    if query is None or key is None:
        return 0.0
    item = ITEM_BYTES[query.dtype]
    rows = elements(query) / max(size(query, -1), 1.0)
    return rows * item * (2.0 * size(key, -2) if call.operator.random else 1.0)
