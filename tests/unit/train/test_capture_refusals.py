"""What cannot become a graph is refused in one line that names module, source line and a way out."""

import inspect
import random
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from swarm.errors import CaptureError, MisuseError
from swarm.train.capture import capture

DEPENDS = (
    "what it computes next depends on the values of a tensor, and every sample must take the same "
    "operators; use torch.where or a mask instead of if, indexing with truth values, .item() or "
    ".tolist()"
)
SHAPE = (
    "the shape of a tensor depends on the values of another, and every micro-batch must have the same "
    "shapes; use torch.where or a mask instead of selecting by value"
)
READ = (
    "a number is read from the values of a tensor, by .item() or .tolist() for example, and every "
    "sample must take the same operators; keep it a tensor"
)
STATE = (
    "the tensor state is kept in a plain attribute and changed by forward, so its state would be lost; "
    'keep it with register_buffer("state", ...)'
)
WRITES = (
    "it writes without gradients to a tensor that has them, a parameter or what was computed from one; "
    "compute a new tensor instead, and leave parameters to the optimizer"
)
CUSTOM = (
    "the custom autograd function Sign has a backward that no other peer can run; write it with "
    "operators of torch, whose gradients torch knows"
)
PENALTY = "a gradient inside forward or the loss is no operator that peers run; drop it"
MISSING = (
    "tracing it raised AttributeError: 'Mistakes' object has no attribute 'missing'; run the model on "
    "its example inputs in PyTorch, and where that works, write this line in another way"
)
SHARED = (
    "0: twin shares memory with 0.weight without being the same tensor; tie them by assignment "
    "(head.weight = embedding.weight), or clone one"
)
META = (
    "0: weight is on the meta device and has no values; make the model on the CPU, or to_empty() and "
    "initialise it"
)
COMPLEX = (
    "0: tensors of type complex64 do not travel; cast to one of bfloat16, bool, float16, float32, "
    "float64, int16, int32, int64, int8, uint8"
)
HOOKED = "0: weight has a gradient hook, which no other peer can run; remove it"
UNTRAINED = "the model: none of its parameters is trained; set requires_grad on those that should be"
VECTOR = (
    "loss: it has shape (2, 4) and type float32, and must be one floating number; reduce it, with "
    ".mean() for example"
)
INTEGER = (
    "loss: it has shape () and type int64, and must be one floating number; reduce it, with .mean() for"
    " example"
)
NO_TENSOR = "loss: it is not a tensor; return the loss first, or give a loss function"
DETACHED = "the model: its loss does not depend on any trained parameter; is it computed without gradients?"
NOT_A_MODULE = "the model is of type builtin_function_or_method, and must be an nn.Module"
NOT_A_TUPLE = "example inputs are a tuple of tensors, one for each field of a sample"
TOO_FEW = "example inputs need at least one input, and the target last where a loss is given"


def foreign(name: str) -> str:
    return f"the operator aten.{name} is not one that peers run for each other; write it with others"


class Sign(torch.autograd.Function):
    """A straight-through estimator."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.sign()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient


class Inner(nn.Module):
    """Has a layer, a buffer and a tensor in a plain attribute; subclasses do something with them."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.state = torch.ones(4)
        self.register_buffer("kept", torch.ones(4))


class Outer(nn.Module):
    """Puts a part where its path is ``blocks.1``."""

    def __init__(self, part: type[nn.Module]) -> None:
        super().__init__()
        self.blocks = nn.Sequential(nn.Linear(4, 4), part())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.blocks(x).mean()


class Branches(Inner):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 0:
            x = x + 1
        return self.layer(x)


class Loops(Inner):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        while self.kept.sum() < 10:
            x = x + 1
        return self.layer(x)


class Helped(Inner):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return helper(self.layer(x))


def helper(x: torch.Tensor) -> torch.Tensor:
    return x if x.max() > 1 else -x


class Selects(Inner):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)[x > 0].mean()


class Finds(Inner):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) * x.nonzero().shape[0]


class Distinct(Inner):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) * torch.unique(x).sum()


class Reads(Inner):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) * x.max().item()


class Lists(Inner):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) * x[0].tolist()[0]


class Transforms(Inner):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.fft.rfft(self.layer(x)).abs()


class Overlays(Inner):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x).as_strided((2, 2), (1, 1))


class Pairs(Inner):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.view_as_complex(self.layer(x).reshape(-1, 2)).abs()


class Estimates(Inner):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return Sign.apply(self.layer(x))


@torch.library.custom_op("capture_test::doubled", mutates_args=())
def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@doubled.register_fake
def doubled_shape(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


doubled.register_autograd(lambda ctx, gradient: gradient * 2)


class Doubles(Inner):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return doubled(self.layer(x))


class Hooks(Inner):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x)
        y.register_hook(lambda gradient: gradient * 2)
        return y


class Penalises(Inner):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x).sum()
        return torch.autograd.grad(y, self.layer.weight)[0]


class Divides(Inner):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) // 2


class Normalises(Inner):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            self.layer.weight.div_(2)
        return self.layer(x)


class Mistakes(Inner):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) + len(self.missing)


class DrawsInPython(Inner):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) * random.random()


class DrawsInNumpy(Inner):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) * float(np.random.rand())


class Replaces(Inner):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.state = self.state + 1
        return self.layer(x) * self.state


class Accumulates(Inner):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.state.add_(1)
        return self.layer(x) * self.state


class Reshapes(Inner):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.kept = torch.ones(5)
        return self.layer(x)


def at(function: Callable[..., Any], fragment: str) -> str:
    """The place of the line of ``function`` that has ``fragment``, as messages write it."""
    lines, first = inspect.getsourcelines(function)
    index, line = next((i, line) for i, line in enumerate(lines) if fragment in line)
    return f"at test_capture_refusals.py:{first + index} `{line.strip()}`"


def refusal(module: Any, inputs: Any = None, loss: Any = None, mode: Any = "train") -> str:
    with pytest.raises(CaptureError) as caught:
        capture(module, inputs or (torch.arange(8.0).reshape(2, 4),), loss=loss, mode=mode)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("part", "fragment", "sentence"),
    [
        (Branches, "if x.sum()", DEPENDS),
        (Loops, "while", DEPENDS),
        (Selects, "x > 0", SHAPE),
        (Finds, "nonzero", SHAPE),
        (Distinct, "unique", SHAPE),
        (Reads, "item()", READ),
        (Lists, "tolist()", READ),
        (Transforms, "rfft", foreign("fft_rfft.default")),
        (Overlays, "as_strided", foreign("as_strided.default")),
        (Pairs, "view_as_complex", foreign("view_as_complex.default")),
        (Estimates, "Sign.apply", CUSTOM),
        (
            Doubles,
            "doubled(",
            CUSTOM.replace("autograd function Sign", "operator capture_test_doubled_default"),
        ),
        (Hooks, "register_hook", "a gradient hook would run on no other peer; change the loss instead"),
        (Penalises, "autograd.grad", PENALTY),
        (
            Divides,
            "// 2",
            "the operator aten.floor_divide has no derivative; detach() its input or use another",
        ),
        (Normalises, "div_", WRITES),
        (Mistakes, "self.missing", MISSING),
    ],
)
def test_a_line_that_cannot_be_captured_is_named(part: type[nn.Module], fragment: str, sentence: str) -> None:
    assert refusal(Outer(part)) == f"blocks.1 {at(part.forward, fragment)}: {sentence}"


def test_the_line_may_be_in_a_function_that_the_module_calls() -> None:
    assert refusal(Outer(Helped)) == f"blocks.1 {at(helper, 'x.max()')}: {DEPENDS}"


@pytest.mark.parametrize("part", [Replaces, Accumulates])
def test_state_outside_the_buffers_is_refused_and_put_back(part: type[nn.Module]) -> None:
    module = Outer(part)
    assert refusal(module) == f"blocks.1: {STATE}"
    assert module.blocks[1].state.tolist() == [1.0] * 4


@pytest.mark.parametrize("part", [DrawsInPython, DrawsInNumpy])
def test_numbers_from_other_generators_are_refused_and_the_generators_put_back(part: type[nn.Module]) -> None:
    random.seed(1)
    np.random.seed(1)
    expected = random.Random(1).random(), np.random.RandomState(1).rand()
    assert refusal(Outer(part)) == (
        "the model: it draws from the random module of Python or numpy, and would get the same number at "
        "every step; use torch.rand"
    )
    assert (random.random(), np.random.rand()) == expected


def test_a_buffer_that_changes_its_shape_is_refused() -> None:
    assert refusal(Outer(Reshapes)) == (
        "blocks.1: its buffer kept is replaced by something of another shape or type; keep both fixed"
    )


def test_a_write_to_an_input_is_refused() -> None:
    class Doubling(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x.mul_(2)
            return super().forward(x).mean()

    place = f"the model {at(Doubling.forward, 'mul_')}"
    assert (
        refusal(Doubling(4, 4))
        == f"{place}: it writes to one of its inputs in place; clone() the input first"
    )


def test_a_renormalised_embedding_writes_to_its_parameter() -> None:
    inputs = (torch.tensor([[0, 1]]), torch.zeros(1, 2, 4))
    assert refusal(nn.Embedding(5, 4, max_norm=1.0), inputs, functional.mse_loss) == (
        "the model: it writes to its parameter weight in forward; only the optimizer may"
    )


def test_a_write_to_a_parameter_is_refused_in_evaluation_too() -> None:
    assert refusal(Outer(Normalises), mode="evaluate").endswith(WRITES)


def gradient_hook(module: nn.Module) -> None:
    module.weight.register_hook(lambda gradient: gradient)


def shared_memory(module: nn.Module) -> None:
    module.twin = nn.Parameter(module.weight.detach())


def frozen(module: nn.Module) -> None:
    module.requires_grad_(requires_grad=False)


def on_meta(module: nn.Module) -> None:
    module.to("meta")


def complex_valued(module: nn.Module) -> None:
    module.extra = nn.Parameter(torch.zeros(2, dtype=torch.complex64))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (gradient_hook, HOOKED),
        (shared_memory, SHARED),
        (frozen, UNTRAINED),
        (on_meta, META),
        (complex_valued, COMPLEX),
    ],
)
def test_parameters_that_cannot_travel_are_named(change: Callable[[nn.Module], None], sentence: str) -> None:
    module = nn.Sequential(nn.Linear(4, 4))
    change(module[0])
    assert refusal(module, (torch.zeros(2, 4), torch.zeros(2, 4)), functional.mse_loss) == sentence


def test_a_lazy_parameter_has_no_shape_yet() -> None:
    assert refusal(nn.Sequential(nn.LazyLinear(4))) == (
        "0: weight has no shape yet; run one batch through the model first"
    )


@pytest.mark.parametrize(
    ("function", "sentence"),
    [
        (lambda m, x: m(x), VECTOR),
        (lambda m, x: m(x).sum().long(), INTEGER),
        (lambda m, x: {"logits": m(x)}, NO_TENSOR),
        (lambda m, x: None, NO_TENSOR),
        (lambda m, x: m(x).detach().mean(), DETACHED),
    ],
)
def test_a_loss_that_is_none_is_refused(function: Callable[..., Any], sentence: str) -> None:
    class Wrapped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> Any:
            return function(self.inner, x)

    assert refusal(Wrapped()) == sentence


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((len, (torch.zeros(1),)), NOT_A_MODULE),
        ((nn.Linear(4, 4), torch.zeros(2, 4)), NOT_A_TUPLE),
        ((nn.Linear(4, 4), ()), TOO_FEW),
    ],
)
def test_arguments_of_the_wrong_kind_are_misuse(arguments: tuple[Any, Any], sentence: str) -> None:
    with pytest.raises(MisuseError) as caught:
        capture(*arguments)
    assert str(caught.value) == sentence
    with pytest.raises(MisuseError, match="the loss is of type int, and must be a function"):
        capture(nn.Linear(4, 4), (torch.zeros(2, 4), torch.zeros(2, 4)), loss=3)  # type: ignore[arg-type]


def test_nothing_is_left_behind_by_a_refusal(capfd: pytest.CaptureFixture[str]) -> None:
    module = Outer(Branches).eval()
    apply = vars(torch.autograd.Function)["apply"]
    refusal(module)
    assert vars(torch.autograd.Function)["apply"] is apply
    assert not any(part.training for part in module.modules())
    assert not torch.overrides._is_torch_function_mode_enabled()
    assert capfd.readouterr() == ("", "")


def test_a_draw_that_another_thread_made_meanwhile_is_not_the_models() -> None:
    class Beside(nn.Linear):
        forwards = 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            Beside.forwards += 1
            if Beside.forwards == 1:  # as a library of the network does, once in a while
                thread = threading.Thread(target=random.random)
                thread.start()
                thread.join()
            return super().forward(x).sum()

    assert capture(Beside(2, 1), (torch.ones(3, 2),)).graph.operators
    assert Beside.forwards > 1
