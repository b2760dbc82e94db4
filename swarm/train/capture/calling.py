"""How the author's module is called: the fields of a micro-batch in, the loss and the outputs out.

The one meaning that capture and the eager reference share.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import torch
from torch import nn

Loss = Callable[[Any, Any], torch.Tensor]
"""Called with (outputs, target); returns a scalar."""

LABELS: Final = "labels"
"""The argument of ``forward`` under which models that compute their own loss take the target."""


def loss_and_outputs(
    model: nn.Module,
    loss: Loss | None,
    fields: Sequence[torch.Tensor],
    names: Sequence[str] | None = None,
) -> tuple[Any, Any]:
    """The loss of ``model`` for ``fields``, of which the target is the last, and what else it returns.

    ``names``: the arguments of ``forward`` that the fields are, where samples say so; otherwise they come in
    its order. With a ``loss`` the target goes there. Without one the model returns the loss: alone, as the
    first of a tuple, or under ``loss`` in a mapping; its target is then the argument ``labels``, wherever
    that stands, if it has one. The loss is None where there is none.
    """
    if loss is not None:
        outputs = _called(model, fields[:-1], names)
        return loss(outputs, fields[-1]), outputs
    if names is None and _has_labels_further_on(model, len(fields)):
        result = model(*fields[:-1], **{LABELS: fields[-1]})
    else:
        result = _called(model, fields, names)
    if isinstance(result, torch.Tensor):
        return result, ()
    if isinstance(result, Mapping):
        return result.get("loss"), result
    return (result[0], result[1:]) if isinstance(result, tuple | list) and result else (None, ())


def unknown_fields(model: nn.Module, names: Sequence[str]) -> list[str]:
    """Those of ``names`` that no argument of ``forward`` has."""
    parameters = inspect.signature(model.forward).parameters.values()
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters):
        return []
    known = {parameter.name for parameter in parameters}
    return [name for name in names if name not in known]


def _called(model: nn.Module, fields: Sequence[torch.Tensor], names: Sequence[str] | None) -> Any:
    if names is None:
        return model(*fields)
    return model(**dict(zip(names, fields, strict=False)))


def _has_labels_further_on(model: nn.Module, fields: int) -> bool:
    """Whether ``forward`` takes a target that as many positional arguments do not reach."""
    parameters = list(inspect.signature(model.forward).parameters)
    return LABELS in parameters and parameters.index(LABELS) >= fields
