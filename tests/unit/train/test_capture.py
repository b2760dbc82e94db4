"""Captured graphs compute what the module computes: loss, gradients and buffers; and leave it alone."""

import copy
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from swarm.graph import dag
from swarm.graph.operators import ALLOWED
from swarm.testing.graphs import GraphRun
from swarm.train.capture import Captured, Mode, capture
from swarm.train.capture.quiet import quiet

Loss = Callable[[Any, Any], torch.Tensor] | None


class Eager(nn.Module):
    """A module made of a function of (module, inputs), with the given parameters and buffers."""

    def __init__(self, function: Callable[..., Any], **tensors: torch.Tensor) -> None:
        super().__init__()
        self.function = function
        for name, tensor in tensors.items():
            if isinstance(tensor, nn.Parameter):
                self.register_parameter(name, tensor)
            else:
                self.register_buffer(name, tensor)

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(self, *inputs)


def weight(*shape: int) -> nn.Parameter:
    count = int(torch.tensor(shape).prod())
    return nn.Parameter(torch.linspace(-1.0, 1.5, count).reshape(shape))


def data(*shape: int) -> torch.Tensor:
    count = int(torch.tensor(shape).prod())
    return torch.sin(torch.arange(float(count))).reshape(shape)


def scalar(result: Any) -> torch.Tensor:
    """A module that returns its loss."""
    return result if isinstance(result, torch.Tensor) else result[0]


def square(outputs: Any, target: torch.Tensor) -> torch.Tensor:
    return functional.mse_loss(outputs, target)


def check(
    module: nn.Module, inputs: Sequence[torch.Tensor], loss: Loss = None, mode: Mode = "train"
) -> Captured:
    """Capture, execute, and compare with the module itself, all within the first contract of D5."""
    captured = capture(module, inputs, loss=loss, mode=mode)
    dag.check_graph(captured.graph)
    assert dag.decode_graph(dag.encode_graph(captured.graph)) == captured.graph
    assert {operator.target for operator in captured.graph.operators} <= ALLOWED
    run = GraphRun(captured, [field.clone() for field in inputs])
    eager = copy.deepcopy(module).train(mode == "train")
    fields = [field.clone() for field in inputs]
    expected = scalar(eager(*fields)) if loss is None else loss(eager(*fields[:-1]), fields[-1])
    assert run.loss.item() == pytest.approx(expected.item(), rel=1e-5)
    before, after = dict(module.named_buffers()), dict(eager.named_buffers())
    assert set(run.updates) >= {name for name in before if not torch.equal(before[name], after[name])}
    for name, buffer in run.updates.items():
        torch.testing.assert_close(buffer, after[name], rtol=1e-6, atol=1e-7)
    if mode == "train":
        check_gradients(run, expected, dict(eager.named_parameters()))
    return captured


def check_gradients(run: GraphRun, loss: torch.Tensor, parameters: Mapping[str, nn.Parameter]) -> None:
    trained = {name: parameter for name, parameter in parameters.items() if parameter.requires_grad}
    expected = torch.autograd.grad(loss, list(trained.values()), allow_unused=True)
    for name, gradient in zip(trained, expected, strict=True):
        assert (gradient is None) == (name not in run.gradients), name
        if gradient is not None:
            assert (run.gradients[name] - gradient).abs().max() <= 1e-6 * gradient.abs().max(), name


def targets(captured: Captured) -> list[str]:
    return [operator.target for operator in captured.graph.operators]


def value_named(captured: Captured, name: str) -> dag.Value:
    return next(value for value in captured.graph.values if value.name == name)


class Tied(nn.Module):
    """An embedding whose weight is also the output projection."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(5, 4, padding_idx=0)
        self.head = nn.Linear(4, 5, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.embedding(tokens))


def test_tied_parameters_are_one_value_with_both_keys() -> None:
    captured = check(Tied(), (torch.tensor([1, 2, 0]), torch.tensor([2, 0, 1])), functional.cross_entropy)
    (parameter,) = captured.graph.of_kind("parameter")
    assert captured.graph.values[parameter].name == "embedding.weight"
    readers = [op.target for op in captured.graph.operators if parameter in dag.operator_inputs(op)]
    assert readers == ["aten.embedding.default", "aten.linear.default"]
    assert captured.state_dict == {"embedding.weight": "embedding.weight", "head.weight": "embedding.weight"}


@pytest.mark.parametrize("mode", ["train", "evaluate"])
def test_batch_norm_updates_its_buffers_explicitly(mode: Mode) -> None:
    module = nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU(inplace=True))
    captured = check(module, (data(4, 2, 6, 6), data(4, 3, 4, 4)), square, mode)
    updated = [captured.graph.values[update.buffer].name for update in captured.graph.updates]
    assert updated == (
        ["1.running_mean", "1.running_var", "1.num_batches_tracked"] if mode == "train" else []
    )
    assert not any(target.split(".")[1].endswith("_") for target in targets(captured))


def test_frozen_batch_norm_stays_frozen_in_training_mode() -> None:
    module = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    module[1].eval()
    captured = capture(module, (data(6, 4), data(6, 4)), loss=square)
    assert captured.graph.updates == ()


def test_a_module_in_evaluation_mode_is_captured_training_all_the_same() -> None:
    module = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)).eval()
    captured = capture(module, (data(6, 4), data(6, 4)), loss=square)
    assert "aten.native_dropout.default" in targets(captured)
    assert not module.training
    assert not module[1].training


def test_frozen_parameters_are_not_differentiable_and_what_only_they_feed_neither() -> None:
    module = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 3))
    module[0].requires_grad_(requires_grad=False)
    captured = check(module, (data(2, 4), data(2, 3)), square)
    flags = {value.name: value.differentiable for value in captured.graph.values}
    assert (flags["0.weight"], flags["1.weight"]) == (False, True)
    assert (flags["linear"], flags["linear_1"]) == (False, True)


def test_every_parameter_and_buffer_is_a_value_used_or_not() -> None:
    class Auxiliary(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.main, self.other = nn.Linear(4, 3), nn.Linear(4, 3)
            self.register_buffer("scratch", torch.ones(2), persistent=False)
            self.register_buffer("kept", torch.ones(2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.main(x) + (self.other(x) if self.training else 0)

    modes: tuple[Mode, ...] = ("train", "evaluate")
    train, evaluate = (check(Auxiliary(), (data(2, 4), data(2, 3)), square, mode) for mode in modes)
    names = [[v.name for v in c.graph.values if v.kind in {"parameter", "buffer"}] for c in (train, evaluate)]
    assert names[0] == names[1]
    assert names[0] == ["main.weight", "main.bias", "other.weight", "other.bias", "scratch", "kept"]
    assert set(train.tensors) == set(names[0])
    assert list(train.state_dict) == list(Auxiliary().state_dict())
    assert "scratch" not in train.state_dict


def test_no_value_is_differentiable_in_evaluation() -> None:
    captured = check(nn.Linear(4, 3), (data(2, 4), data(2, 3)), square, "evaluate")
    assert not any(value.differentiable for value in captured.graph.values)


def test_values_are_differentiable_exactly_where_the_loss_has_a_gradient() -> None:
    def forward(m: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        kept = x * m.a
        stopped = (y * m.b).detach()
        best = kept.argmax(1)
        unused_metric = kept.sum() * 2
        return (kept * stopped).mean() + kept.gather(1, best[:, None]).sum(), unused_metric

    captured = check(Eager(forward, a=weight(3), b=weight(3)), (data(4, 3), data(4, 3)))
    flags = {v.name: v.differentiable for v in captured.graph.values}
    assert (flags["a"], flags["b"]) == (True, False)
    assert (flags["input.0"], flags["input.1"]) == (False, False)
    assert (flags["mul"], flags["mul_1"], flags["detach"], flags["argmax"]) == (True, False, False, False)
    metric = captured.graph.outputs[0]
    assert not captured.graph.values[metric].differentiable


def test_several_outputs_are_outputs_of_the_operator_itself() -> None:
    def forward(m: Any, x: torch.Tensor) -> torch.Tensor:
        a, b = (x * m.w).chunk(2, dim=1)
        top, where = (x * m.w).max(dim=1)
        _, second, _ = (x * m.w).split([1, 2, 1], dim=1)
        return (a * b).sum() + top.sum() + second.pow(2).sum() + (where > 0).float().sum()

    captured = check(Eager(forward, w=weight(4)), (data(3, 4),))
    outputs = {op.target: op.outputs for op in captured.graph.operators}
    assert len(outputs["aten.split.Tensor"]) == 2
    assert len(outputs["aten.max.dim"]) == 2
    sizes = outputs["aten.split_with_sizes.default"]
    assert [index >= 0 for index in sizes] == [False, True, False]
    assert not any("getitem" in target for target in targets(captured))


def test_dead_operators_are_dropped_and_outputs_beside_the_loss_are_kept() -> None:
    def forward(m: Any, x: torch.Tensor) -> dict[str, torch.Tensor]:
        logits = x @ m.w
        logits.exp().sum()
        return {"loss": logits.mean(), "logits": logits}

    captured = capture(Eager(forward, w=weight(4, 3)), (data(2, 4),))
    assert targets(captured) == ["aten.matmul.default", "aten.mean.default"]
    (logits,) = captured.graph.outputs
    assert captured.graph.values[logits].spec.shape == (2, 3)


def test_every_input_is_a_value_in_the_order_of_the_fields() -> None:
    module = Eager(lambda m, x, unused, z: (x * m.w + z).mean(), w=weight(3))
    captured = check(module, (data(2, 3), torch.tensor([1, 2]), data(2, 3)))
    values = [captured.graph.values[index] for index in captured.graph.inputs()]
    assert [(value.name, value.spec.dtype) for value in values] == [
        ("input.0", "float32"), ("input.1", "int64"), ("input.2", "float32")
    ]  # fmt: skip


def test_operators_know_their_module_and_their_authors_line() -> None:
    captured = check(Tied(), (torch.tensor([1]), torch.tensor([2])), functional.cross_entropy)
    places = {op.target: (op.path, op.source) for op in captured.graph.operators}
    line = Tied.forward.__code__.co_firstlineno + 1
    assert places["aten.embedding.default"] == ("embedding", f"test_capture.py:{line}")
    assert places["aten.linear.default"] == ("head", f"test_capture.py:{line}")
    assert places["aten.cross_entropy_loss.default"][0] == "loss"


def test_a_loss_with_tensors_of_its_own_does_not_take_the_models_names() -> None:
    loss = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 3.0]))
    captured = capture(nn.Linear(4, 3), (data(2, 4), torch.tensor([0, 2])), loss=loss)
    assert captured.tensors["(loss).weight"].tolist() == [1.0, 2.0, 3.0]
    assert "(loss).weight" not in captured.state_dict


def test_equal_constants_are_one_tensor_named_by_content() -> None:
    def forward(m: Any, x: torch.Tensor) -> torch.Tensor:
        return (x * m.w * torch.tensor([1.0, 2.0, 3.0])).sum() + (x * torch.tensor([1.0, 2.0, 3.0])).sum()

    captured = check(Eager(forward, w=weight(3)), (data(2, 3),))
    (constant,) = captured.graph.of_kind("constant")
    assert captured.tensors[captured.graph.values[constant].name].tolist() == [1.0, 2.0, 3.0]


def test_the_same_module_gives_the_same_graph() -> None:
    first, second = (
        capture(Tied(), (torch.tensor([1]), torch.tensor([2])), loss=functional.cross_entropy) for _ in "ab"
    )
    assert dag.encode_graph(first.graph) == dag.encode_graph(second.graph)


def test_tensors_share_memory_with_the_module_and_channels_last_is_kept() -> None:
    module = nn.Conv2d(2, 3, 3).to(memory_format=torch.channels_last)
    captured = check(module, (data(2, 2, 5, 5), data(2, 3, 3, 3)), square)
    assert captured.tensors["weight"].data_ptr() == module.weight.data_ptr()
    assert value_named(captured, "weight").spec.strides == module.weight.stride()


def test_shape_makers_need_no_tensor_and_uninitialised_memory_is_zeros() -> None:
    def forward(m: Any, x: torch.Tensor) -> torch.Tensor:
        filled = torch.zeros_like(x) + x.new_full((2, 3), 2.0) + torch.empty_like(x).fill_(1.0)
        return (filled * m.w).sum()

    captured = check(Eager(forward, w=weight(3)), (data(2, 3),))
    sourceless = [op.target for op in captured.graph.operators if not dag.operator_inputs(op)]
    assert sourceless == ["aten.zeros.default", "aten.full.default", "aten.zeros.default"]


def test_views_become_reshapes_that_any_layout_allows() -> None:
    module = Eager(lambda m, x: (x * m.w).transpose(0, 1).contiguous().view(-1).sum(), w=weight(3))
    assert "aten.reshape.default" in targets(check(module, (data(2, 3),)))


def test_a_block_without_gradients_stops_them() -> None:
    def forward(m: Any, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            scale = (x * m.a).sum()
        with torch.autocast("cpu", torch.bfloat16):
            with torch.no_grad():
                fixed = x @ m.b
            half = x @ m.c
        return (x * m.a).sum() * scale + (fixed * half).float().sum() + (x * m.d).data.sum()

    module = Eager(forward, a=weight(3), b=weight(3, 3), c=weight(3, 3), d=weight(3))
    captured = check(module, (data(2, 3),))
    assert not value_named(captured, "b").differentiable
    assert not value_named(captured, "d").differentiable
    assert all(op.source for op in captured.graph.operators)


def test_buffers_written_without_gradients_are_updated() -> None:
    def forward(m: Any, x: torch.Tensor) -> torch.Tensor:
        hidden = x * m.w
        with torch.no_grad():
            m.average.mul_(0.9).add_(hidden.mean(0), alpha=0.1)
            m.count += 1
        return ((hidden - m.average) ** 2).mean()

    module = Eager(forward, w=weight(3), average=torch.zeros(3), count=torch.tensor(0))
    captured = check(module, (data(2, 3),))
    assert [captured.graph.values[u.buffer].name for u in captured.graph.updates] == ["average", "count"]


def test_a_buffer_replaced_by_assignment_is_updated() -> None:
    def forward(m: Any, x: torch.Tensor) -> torch.Tensor:
        m.state = 0.5 * m.state + x.mean(0)
        return (x * m.w * m.state).sum()

    module = Eager(forward, w=weight(3), state=torch.ones(3))
    captured = check(module, (data(2, 3),))
    assert [captured.graph.values[u.buffer].name for u in captured.graph.updates] == ["state"]
    assert module.state.tolist() == [1.0, 1.0, 1.0]


def test_a_buffer_shared_by_two_calls_sees_both_updates() -> None:
    def forward(m: Any, x: torch.Tensor) -> torch.Tensor:
        total = x.sum() * m.w.sum()
        for _ in range(2):
            m.count.add_(1)
            total = total * m.count.clone()
        return total

    captured = check(Eager(forward, w=weight(3), count=torch.tensor(0.0)), (data(2, 3),))
    assert len(captured.graph.updates) == 1


def test_an_attribute_that_only_records_is_no_state() -> None:
    def forward(m: Any, x: torch.Tensor) -> torch.Tensor:
        m.last = x * m.w
        return m.last.sum()

    module = Eager(forward, w=weight(3))
    check(module, (data(2, 3),))
    assert not hasattr(module, "last")


@pytest.mark.parametrize(
    ("module", "random"),
    [
        (nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)), True),
        (nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.0)), False),
        (nn.Sequential(nn.Linear(4, 4), nn.AlphaDropout(0.1), nn.RReLU()), True),
        (nn.TransformerEncoderLayer(4, 2, 8, dropout=0.1, batch_first=True), True),
        (nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True), False),
    ],
)
def test_only_what_draws_is_random_and_only_in_training(module: nn.Module, random: bool) -> None:
    inputs = (data(2, 3, 4), data(2, 3, 4))
    modes: tuple[Mode, ...] = ("train", "evaluate")
    train, evaluate = (capture(module, inputs, loss=square, mode=mode).graph for mode in modes)
    assert any(op.random for op in train.operators) == random
    assert not any(op.random for op in evaluate.operators)


@pytest.mark.parametrize(("layers", "dropout", "random"), [(2, 0.5, True), (2, 0.0, False)])
def test_a_recurrent_sequence_draws_only_with_dropout(layers: int, dropout: float, random: bool) -> None:
    module = nn.LSTM(4, 5, layers, dropout=dropout, batch_first=True)
    captured = capture(module, (data(2, 3, 4), data(2, 3, 5)), loss=lambda outputs, t: square(outputs[0], t))
    assert [op.random for op in captured.graph.operators if "lstm" in op.target] == [random]


def test_the_module_and_the_generator_are_left_as_they_were() -> None:
    module = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5))
    module[0].weight.grad = torch.ones(4, 4)
    module[2].eval()
    before = {key: tensor.clone() for key, tensor in module.state_dict().items()}
    attributes = [{name: id(value) for name, value in vars(part).items()} for part in module.modules()]
    generator = torch.get_rng_state()
    for mode in ("train", "evaluate"):
        capture(module, (data(6, 4), data(6, 4)), loss=square, mode=mode)
    assert all(torch.equal(before[key], tensor) for key, tensor in module.state_dict().items())
    assert attributes == [
        {name: id(value) for name, value in vars(part).items()} for part in module.modules()
    ]
    assert [part.training for part in module] == [True, True, False]
    assert torch.equal(module[0].weight.grad, torch.ones(4, 4))
    assert all(parameter.requires_grad for parameter in module.parameters())
    assert torch.equal(generator, torch.get_rng_state())


def test_what_the_model_prints_and_torch_warns_stays_inside(capsys: pytest.CaptureFixture[str]) -> None:
    def forward(m: Any, x: torch.Tensor) -> torch.Tensor:
        print("looking at", x)  # noqa: T201
        return (x * m.w).sum()

    capture(Eager(forward, w=weight(3)), (data(2, 3),))
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("loss", [nn.functional.mse_loss, nn.MSELoss()], ids=["function", "module"])
def test_what_torch_warns_the_author_of_is_said_once(loss: Any, caplog: pytest.LogCaptureFixture) -> None:
    for mode in ("train", "evaluate"):
        capture(nn.Linear(4, 1), (data(5, 4), data(5)), loss=loss, mode=mode)
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert record.getMessage().startswith(
        "torch warns: Using a target size (torch.Size([5])) that is different"
    )
    assert "\n" not in record.getMessage()
    assert record.swarm_fields["at"].startswith("test_capture.py:")


def test_a_model_that_torch_has_nothing_against_hears_nothing(caplog: pytest.LogCaptureFixture) -> None:
    capture(nn.Sequential(nn.Linear(4, 4), nn.LSTM(4, 4)), (data(5, 4), data(5, 4)), loss=first_square)
    assert caplog.records == []


def first_square(outputs: tuple[torch.Tensor, Any], target: torch.Tensor) -> torch.Tensor:
    return (outputs[0] - target).square().mean()


def test_other_threads_keep_their_voice_while_one_is_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    with quiet():
        print("dropped")  # noqa: T201
        print("dropped", file=sys.stderr)  # noqa: T201
        for stream in (sys.stdout, sys.stderr):
            thread = threading.Thread(target=print, args=("kept",), kwargs={"file": stream})
            thread.start()
            thread.join()
    assert capsys.readouterr() == ("kept\n", "kept\n")


def test_what_forward_appends_to_a_list_is_taken_back() -> None:
    def forward(m: Any, x: torch.Tensor) -> torch.Tensor:
        m.history.append(x.mean())
        return (x * m.w).sum()

    module = Eager(forward, w=weight(3))
    module.history = []
    capture(module, (data(2, 3),))
    assert module.history == []


def indexed(m: Any, x: torch.Tensor) -> torch.Tensor:
    y = x * m.w
    y[:, 0] = y[:, 1] * 2
    y[0] += 1
    y[x > 0.5] = 0.0
    z = torch.zeros_like(y)
    z[1] = y[0, 0].double()
    z.view(-1)[2:4].add_(m.w[:2])
    return (y * 2 + z).sum() + y.masked_fill(x < 0, -3.0).softmax(-1)[:, 1].sum()


def attention(m: Any, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    heads = (x * m.w).view(2, 3, 2, 2).transpose(1, 2)
    masked = functional.scaled_dot_product_attention(heads, heads, heads, attn_mask=mask)
    causal = functional.scaled_dot_product_attention(heads, heads, heads, is_causal=True)
    return torch.einsum("bhtd,bhtd->", masked, causal)


def biased_attention(m: Any, x: torch.Tensor) -> torch.Tensor:
    """With a learned bias another kernel runs, whose output lies in memory differently."""
    heads = (x * m.w).view(2, 3, 2, 2).transpose(1, 2)
    y = functional.scaled_dot_product_attention(heads, heads, heads, attn_mask=m.bias[None])
    return y.transpose(1, 2).reshape(2, 3, 4).tanh().mean()


def reductions(m: Any, x: torch.Tensor) -> torch.Tensor:
    y = x * m.w
    return (
        y.var() + y.std(0).sum() + y.logsumexp(1).sum() + y.topk(2)[0].sum() + y.cumsum(0).mean() + y.norm()
    )


def resampled(m: Any, x: torch.Tensor) -> torch.Tensor:
    y = functional.interpolate(x * m.w, scale_factor=2, mode="bilinear", align_corners=False)
    y = functional.pad(functional.pixel_shuffle(y, 2), (1, 1, 1, 1), mode="reflect")
    return (
        functional.unfold(y, 3).pow(2).mean()
        + functional.grid_sample(
            y,
            functional.affine_grid(m.theta.expand(2, 2, 3), (2, 1, 4, 4), align_corners=False),
            align_corners=False,
        ).mean()
    )


def recurrent(outputs: tuple[torch.Tensor, Any], target: torch.Tensor) -> torch.Tensor:
    return square(outputs[0], target)


def checkpointed(m: Any, x: torch.Tensor) -> torch.Tensor:
    return torch.utils.checkpoint.checkpoint(lambda y: (y * m.w).tanh(), x, use_reentrant=False).sum()


def mapped(m: Any, x: torch.Tensor) -> torch.Tensor:
    return torch.vmap(lambda row: (row * m.w).sum())(x).mean()


def images(channels: int, size: int) -> torch.Tensor:
    return data(3, channels, size, size)


PAIR = (data(2, 4), data(2, 4))
NORMED = nn.utils.parametrizations
CHANNELS_LAST = nn.Sequential(
    nn.Conv2d(2, 4, 3),
    nn.BatchNorm2d(4),
    nn.ReLU(inplace=True),
    nn.MaxPool2d(2),
    nn.Flatten(),
    nn.Linear(16, 3),
).to(memory_format=torch.channels_last)
KINDS: dict[str, tuple[nn.Module, tuple[torch.Tensor, ...], Loss]] = {
    "lstm": (nn.LSTM(4, 5, 2, bidirectional=True), (data(2, 3, 4), data(2, 3, 10)), recurrent),
    "gru": (nn.GRU(4, 5), (data(2, 3, 4), data(2, 3, 5)), recurrent),
    "group norm": (
        nn.Sequential(nn.Conv2d(2, 4, 3), nn.GroupNorm(2, 4), nn.SiLU(), nn.ConvTranspose2d(4, 2, 3)),
        (images(2, 6), images(2, 6)),
        square,
    ),
    "instance norm": (
        nn.Sequential(nn.Conv2d(2, 4, 3), nn.InstanceNorm2d(4, affine=True, track_running_stats=True)),
        (images(2, 6), images(4, 4)),
        square,
    ),
    "channels last": (
        CHANNELS_LAST,
        (images(2, 6).to(memory_format=torch.channels_last), torch.tensor([0, 1, 2])),
        functional.cross_entropy,
    ),
    "transformer": (
        nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True),
        (data(2, 3, 8), data(2, 3, 8)),
        square,
    ),
    "padding": (nn.Embedding(9, 4, padding_idx=0), (torch.tensor([[0, 1], [2, 0]]), data(2, 2, 4)), square),
    "spectral norm": (NORMED.spectral_norm(nn.Linear(4, 4)), PAIR, square),
    "weight norm": (NORMED.weight_norm(nn.Linear(4, 4)), PAIR, square),
    "activations": (
        nn.Sequential(nn.Linear(4, 4), nn.RMSNorm(4), nn.GELU(approximate="tanh"), nn.GLU(), nn.PReLU()),
        (data(3, 4), data(3, 2)),
        square,
    ),
    "writes by index": (Eager(indexed, w=weight(3)), (data(3, 3),), None),
    "attention": (Eager(attention, w=weight(4)), (data(2, 3, 4), data(3, 3)), None),
    "biased attention": (Eager(biased_attention, w=weight(4), bias=weight(2, 3, 3)), (data(2, 3, 4),), None),
    "reductions": (Eager(reductions, w=weight(3)), (data(4, 3),), None),
    "resampling": (Eager(resampled, w=weight(1), theta=weight(2, 3)), (data(2, 4, 4, 4),), None),
    "vmap": (Eager(mapped, w=weight(3)), (data(4, 3),), None),
    "checkpoint": (Eager(checkpointed, w=weight(3)), (data(4, 3),), None),
}


@pytest.mark.parametrize("mode", ["train", "evaluate"])
@pytest.mark.parametrize("kind", KINDS)
def test_graphs_agree_with_the_module(kind: str, mode: Mode) -> None:
    module, inputs, loss = KINDS[kind]
    check(module, inputs, loss, mode)
