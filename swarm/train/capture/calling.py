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

Metric = Callable[[Any, Any], torch.Tensor]
"""Called with (outputs, target) in evaluation; returns a number, such as the share of right answers."""

LABELS: Final = "labels"
"""The argument of ``forward`` under which models that compute their own loss take the target."""


_EMPTY: Final = inspect.Signature.empty


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
        return measured(loss, outputs, fields[-1]), outputs
    if names is None and _has_labels_further_on(model, len(fields)):
        result = model(*fields[:-1], **{LABELS: fields[-1]})
    else:
        result = _called(model, fields, names)
    if isinstance(result, torch.Tensor):
        return result, ()
    if isinstance(result, Mapping):
        return result.get("loss"), result
    return (result[0], result[1:]) if isinstance(result, tuple | list) and result else (None, ())


def measured(loss: Loss, outputs: Any, target: torch.Tensor) -> Any:
    """The loss; a call of its own, by which a traceback tells whose fault an error is."""
    return loss(outputs, target)


def misfit(model: nn.Module, count: int, names: Sequence[str] | None) -> str:
    """Why ``forward`` does not take ``count`` fields, under ``names`` if they have some; empty if it does."""
    signature = inspect.signature(model.forward)
    try:
        if names is not None:
            signature.bind(**dict.fromkeys(names))
        elif not _has_labels_further_on(model, count):
            signature.bind(*[None] * count)
    except TypeError as error:
        return f"{type(model).__name__}.forward takes {signature.replace(return_annotation=_EMPTY)}: {error}"
    return ""


def _called(model: nn.Module, fields: Sequence[torch.Tensor], names: Sequence[str] | None) -> Any:
    if names is None:
        return model(*fields)
    return model(**dict(zip(names, fields, strict=False)))


def _has_labels_further_on(model: nn.Module, fields: int) -> bool:
    """Whether ``forward`` takes a target that as many positional arguments do not reach."""
    parameters = list(inspect.signature(model.forward).parameters)
    return LABELS in parameters and parameters.index(LABELS) >= fields
