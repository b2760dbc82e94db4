"""What a trace must not do to the author's module, and what it must not swallow in silence.

``torch.export`` runs the module's ``forward`` and records operators. It does not see a custom autograd
function's backward, a gradient hook, or a tensor kept in a plain attribute and replaced: a graph without them
would train something else. They are refused here, while the offending line is still on the stack.
"""

import contextlib
import random
from collections.abc import Callable, Iterator
from typing import Any, Final, NoReturn

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from swarm.train.capture.ctc import ctc_loss
from swarm.train.capture.places import HiddenDraw, Place, Refusal


@contextlib.contextmanager
def preserved(*modules: nn.Module) -> Iterator[None]:
    """Leave every attribute, flag, parameter and buffer slot of ``modules`` as it was."""
    parts = {id(part): part for module in modules for part in module.modules()}.values()
    before = [(part, dict(vars(part))) for part in parts]
    containers = [value for _, attributes in before for value in attributes.values()]
    slots = [(slot, dict(slot)) for slot in containers if isinstance(slot, dict)]
    lists = [(kept, list(kept)) for kept in containers if isinstance(kept, list)]
    held = [(tensor, tensor.detach().clone()) for part in parts for _, tensor in plain_tensors(part)]
    try:
        yield
    finally:
        for part, attributes in before:
            vars(part).clear()
            vars(part).update(attributes)
        for slot, content in slots:
            slot.clear()
            slot.update(content)
        for kept, items in lists:
            kept[:] = items
        for tensor, value in held:
            if not torch.equal(tensor, value):
                tensor.detach().copy_(value)


def plain_tensors(module: nn.Module) -> list[tuple[str, torch.Tensor]]:
    """Tensors that ``module`` keeps in plain attributes, neither parameters nor buffers."""
    return [(name, value) for name, value in vars(module).items() if isinstance(value, torch.Tensor)]


@contextlib.contextmanager
def no_hidden_draws() -> Iterator[None]:
    """Refuse numbers from Python's or numpy's global generator: the graph would keep one draw for ever."""
    before = random.getstate()
    numpy_before = np.random.get_state(legacy=False)
    try:
        yield
        if random.getstate() != before or not _equal(np.random.get_state(legacy=False), numpy_before):
            raise HiddenDraw(
                "it draws from the random module of Python or numpy, and would get the same number at every "
                "step; use torch.rand",
                Place(),
            )
    finally:
        random.setstate(before)
        np.random.set_state(numpy_before)


def _equal(one: Any, other: Any) -> bool:
    """Whether two states of numpy's generator are the same, which hold arrays inside of dictionaries."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_equal(one[key], other[key]) for key in one)
    return bool(np.array_equal(one, other))


@contextlib.contextmanager
def no_custom_backward() -> Iterator[None]:
    """Refuse custom autograd functions while the block runs."""

    def refuse(cls: type, *_args: Any, **_kwargs: Any) -> NoReturn:
        name = cls.__name__.removeprefix(_BACKWARD_OF_OPERATOR)
        kind = "autograd function" if name == cls.__name__ else "operator"
        raise Refusal(
            f"the custom {kind} {name} has a backward that no other peer can run; "
            "write it with operators of torch, whose gradients torch knows"
        )

    original = vars(torch.autograd.Function)["apply"]
    setattr(torch.autograd.Function, "apply", classmethod(refuse))  # noqa: B010
    try:
        yield
    finally:
        setattr(torch.autograd.Function, "apply", original)  # noqa: B010


_BACKWARD_OF_OPERATOR: Final = "GeneratedBackwardFor_"
"""How torch begins the name of the class that it makes for a custom operator's gradient."""

_REFUSED: Final[dict[Callable[..., Any], str]] = {
    torch.Tensor.register_hook: "a gradient hook would run on no other peer; change the loss instead",
    torch.Tensor.register_post_accumulate_grad_hook: "a gradient hook would run on no other peer; drop it",
    torch.Tensor.retain_grad: "retain_grad() has no effect on other peers; drop it",
    torch.Tensor.backward: "a backward pass inside forward is no operator that peers run; drop it",
    torch.autograd.backward: "a backward pass inside forward is no operator that peers run; drop it",
    torch.autograd.grad: "a gradient inside forward or the loss is no operator that peers run; drop it",
}
_CTC: Final = frozenset({torch.ctc_loss, functional.ctc_loss})
_DATA: Final = getattr(torch.Tensor.data, "__get__")  # noqa: B009  a property, which the type checker does not see


class Watch(TorchFunctionMode):
    """Refuses calls that a graph of operators cannot hold, and writes down what it would lose.

    Lost would be that a block runs without gradients (export drops it where blocks are nested in autocast,
    and its decompositions everywhere), and ``.data``: both become explicit ``detach`` operators.
    ``ctc_loss``, which is no operator that peers run, is written with others.
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Called by torch for every function on a tensor."""
        if func in _REFUSED:
            raise Refusal(_REFUSED[func])
        if func == _DATA:
            return args[0].detach()
        kwargs = kwargs or {}
        if func in _CTC:
            return ctc_loss(*args, **kwargs)
        if not torch.is_grad_enabled():
            _refuse_hidden_write(func, args, kwargs)
            args, kwargs = pytree.tree_map_only(torch.Tensor, _detached, (args, kwargs))
        return func(*args, **kwargs)


def _detached(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach() if tensor.requires_grad else tensor


def _refuse_hidden_write(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    name = getattr(func, "__name__", "")
    writes = name == "__setitem__" or (name.endswith("_") and name[-2:] != "__" and name != "requires_grad_")
    written = args[0] if writes and args else kwargs.get("out")
    if isinstance(written, torch.Tensor) and written.requires_grad:
        raise Refusal(
            "it writes without gradients to a tensor that has them, a parameter or what was computed from "
            "one; compute a new tensor instead, and leave parameters to the optimizer"
        )
