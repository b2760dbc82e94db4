"""Arguments of an operator: from the graph's closed union to what torch takes, with holes for values."""

from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import Any, assert_never

import torch

from swarm.compress.layout import DTYPES
from swarm.errors import FailureError, RemoteProtocolError
from swarm.graph.dag import (
    Argument,
    Device,
    MemoryFormat,
    Operator,
    Ref,
    Scalar,
    Sequence,
    TypeName,
    references,
)
from swarm.graph.operators import ALLOWED
from swarm.ids import ValueId

Values = Mapping[ValueId, torch.Tensor]


def resolve(target: str) -> Callable[..., Any]:
    """The operator that ``target`` (``aten.linear.default``) names.

    Raises RemoteProtocolError for one that is not on the allow-list, FailureError for one that this build of
    torch does not have.
    """
    if target not in ALLOWED:
        raise RemoteProtocolError(f"the operator {target} is not on the allow-list")
    _, packet, overload = target.split(".")
    try:
        found: Callable[..., Any] = getattr(getattr(torch.ops.aten, packet), overload)
    except AttributeError:
        raise FailureError(f"torch {torch.__version__} has no operator {target}; update torch") from None
    return found


class Template:
    """The arguments of one call: ``bound`` are the values that never change, :meth:`fill` adds the others."""

    __slots__ = ("_args", "_holes", "_kwargs", "_named_holes", "bound", "device")

    def __init__(self, operator: Operator, bound: Values, device: torch.device) -> None:
        self.bound = bound
        self.device = device
        self._args = [_fixed(argument, bound, device) for argument in operator.args]
        self._kwargs = {name: _fixed(argument, bound, device) for name, argument in operator.kwargs}
        self._holes = [
            (position, _hole(argument, bound, device))
            for position, argument in enumerate(operator.args)
            if _is_open(argument, bound)
        ]
        self._named_holes = [
            (name, _hole(argument, bound, device))
            for name, argument in operator.kwargs
            if _is_open(argument, bound)
        ]

    def fill(self, values: Values) -> tuple[list[Any], dict[str, Any]]:
        """Positional and named arguments for one call."""
        args, kwargs = self._args.copy(), self._kwargs
        for position, hole in self._holes:
            args[position] = hole(values)
        if self._named_holes:
            kwargs = kwargs | {name: hole(values) for name, hole in self._named_holes}
        return args, kwargs


def _is_open(argument: Argument, bound: Values) -> bool:
    return any(value not in bound for value in references(argument))


def _hole(argument: Argument, bound: Values, device: torch.device) -> Callable[[Values], Any]:
    """What makes an open argument from the values at hand."""
    if isinstance(argument, Ref):
        return itemgetter(ValueId(argument.value))
    items = argument.items if isinstance(argument, Sequence) else ()
    parts = [
        itemgetter(ValueId(item.value))
        if isinstance(item, Ref) and item.value not in bound
        else _constant(_fixed(item, bound, device))
        for item in items
    ]
    return lambda values: [part(values) for part in parts]


def _constant(value: Any) -> Callable[[Values], Any]:
    return lambda _: value


def _fixed(argument: Argument, bound: Values, device: torch.device) -> Any:
    """What an argument is in every call; None in place of values at hand."""
    match argument:
        case Ref(value=value):
            return bound.get(ValueId(value))
        case Scalar(value=scalar):
            return scalar
        case TypeName(name=name):
            return DTYPES[name]
        case MemoryFormat(name=name):
            return getattr(torch, name)
        case Device():
            return device
        case Sequence(items=items):
            return [_fixed(item, bound, device) for item in items]
        case _:
            assert_never(argument)
