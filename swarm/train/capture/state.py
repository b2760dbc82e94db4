"""The tensors of a module under one name each, and what cannot travel among them."""

import hashlib
import itertools
from collections.abc import Iterator
from typing import Final

import torch
from msgspec import Struct
from torch import nn
from torch.nn.parameter import is_lazy

from swarm.ids import base32
from swarm.train.capture.arguments import spec_of
from swarm.train.capture.places import MODEL_PREFIX, Place, Refusal
from swarm.train.capture.wrapper import ModelWithLoss

LOSS_TENSORS: Final = "(loss)."
"""Before the names of the loss's own parameters and buffers, so that none can be a name of the model's."""

_CONSTANT_CHARACTERS: Final = 16


class ModelState(Struct, frozen=True, kw_only=True):
    """Parameters and buffers of a model and its loss.

    ``parameters`` and ``buffers`` have each tensor once, under the first of its names. ``names`` maps every
    name in the traced wrapper to that one. ``state_dict`` maps each tensor key of the author's
    ``module.state_dict()``, in its order, to that one.
    """

    parameters: dict[str, torch.Tensor]
    buffers: dict[str, torch.Tensor]
    names: dict[str, str]
    state_dict: dict[str, str]

    def trained(self) -> frozenset[str]:
        """The names of the parameters that get gradients."""
        return frozenset(name for name, tensor in self.parameters.items() if tensor.requires_grad)


def model_state(wrapper: ModelWithLoss) -> ModelState:
    """The state of what ``wrapper`` wraps; raises Refusal for a tensor that cannot travel."""
    first: dict[int, str] = {}
    names: dict[str, str] = {}
    found: dict[str, dict[str, torch.Tensor]] = {"parameters": {}, "buffers": {}}
    for kind, traced, tensor in _named_tensors(wrapper):
        if id(tensor) not in first:
            first[id(tensor)] = _own_name(traced)
            found[kind][first[id(tensor)]] = tensor
            _check(first[id(tensor)], tensor)
        names[traced] = first[id(tensor)]
    _refuse_overlap(found["parameters"] | found["buffers"])
    keys = {
        key: first[id(tensor)]
        for key, tensor in wrapper.model.state_dict(keep_vars=True).items()
        if isinstance(tensor, torch.Tensor) and id(tensor) in first
    }
    return ModelState(parameters=found["parameters"], buffers=found["buffers"], names=names, state_dict=keys)


def constant_name(tensor: torch.Tensor) -> str:
    """A name made of the constant's type, shape and elements: equal constants of two graphs are one."""
    flat = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
    head = f"{tensor.dtype} {tuple(tensor.shape)} {tensor.stride()} ".encode()
    digest = hashlib.sha256(head)
    digest.update(flat.numpy().data)
    return f"constant.{base32(digest.digest())[:_CONSTANT_CHARACTERS]}"


def _named_tensors(wrapper: nn.Module) -> Iterator[tuple[str, str, torch.Tensor]]:
    for name, parameter in wrapper.named_parameters(remove_duplicate=False):
        yield "parameters", name, parameter
    for name, buffer in wrapper.named_buffers(remove_duplicate=False):
        yield "buffers", name, buffer


def _own_name(traced: str) -> str:
    if traced.startswith(MODEL_PREFIX):
        return traced.removeprefix(MODEL_PREFIX)
    return LOSS_TENSORS + traced.partition(".")[2]


def _check(name: str, tensor: torch.Tensor) -> None:
    path, _, attribute = name.rpartition(".")
    place = Place(path=path)
    if is_lazy(tensor):
        raise Refusal(f"{attribute} has no shape yet; run one batch through the model first", place)
    if tensor.is_meta:
        raise Refusal(
            f"{attribute} is on the meta device and has no values; make the model on the CPU, or to_empty() "
            "and initialise it",
            place,
        )
    spec_of(tensor, place)
    hooks = ("_backward_hooks", "_post_accumulate_grad_hooks")
    if any(getattr(tensor, hook, None) for hook in hooks):
        raise Refusal(f"{attribute} has a gradient hook, which no other peer can run; remove it", place)


def _refuse_overlap(tensors: dict[str, torch.Tensor]) -> None:
    """Refuse tensors over one piece of memory: an update of one would change the other."""
    ranges = []
    for name, tensor in tensors.items():
        if tensor.numel():
            span = sum(
                (size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
            )
            start = tensor.data_ptr()
            ranges.append((start, start + (span + 1) * tensor.element_size(), name))
    ranges.sort(key=lambda found: found[:2])
    for (_, end, first), (start, _, second) in itertools.pairwise(ranges):
        if start < end:
            path, _, attribute = second.rpartition(".")
            raise Refusal(
                f"{attribute} shares memory with {first} without being the same tensor; tie them by "
                "assignment (head.weight = embedding.weight), or clone one",
                Place(path=path),
            )
