"""Parameter groups: which parameters are trained with a weight decay or learning rate of their own."""

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

import torch

from swarm.errors import MisuseError
from swarm.train.settings import check_number
from swarm.wire.records import manifest

MAX_GROUPS: Final = 16
MAX_NAMES: Final = 16
MAX_DIMENSIONS: Final = 64
"""The manifest's bounds."""


def check_names(names: object) -> None:
    """Raise MisuseError unless ``names`` are the patterns of a group."""
    if (
        not isinstance(names, tuple)
        or not 1 <= len(names) <= MAX_NAMES
        or not all(isinstance(pattern, str) and pattern for pattern in names)
    ):
        raise MisuseError(f"the names of a group are a tuple of 1 to {MAX_NAMES} patterns, and not {names!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Settings of their own for the parameters whose name and number of dimensions fit.

    Of several groups that a parameter fits, the first one counts.
    """

    names: tuple[str, ...] = ("*",)
    """Shell patterns (``*.bias``), one of which the parameter's name in ``named_parameters()`` has to fit."""
    most_dimensions: int = MAX_DIMENSIONS
    """1 leaves out all but biases and the parameters of norms."""
    weight_decay: float | None = None
    """In place of the optimizer's, where it is given."""
    lr_scale: float = 1.0
    """Times the optimizer's learning rate."""

    def __post_init__(self) -> None:
        check_names(self.names)
        if type(self.most_dimensions) is not int or not 0 <= self.most_dimensions <= MAX_DIMENSIONS:
            raise MisuseError(
                f"most_dimensions is from 0 to {MAX_DIMENSIONS}, and not {self.most_dimensions!r}"
            )
        if self.weight_decay is not None:
            check_number("the weight_decay of a group", self.weight_decay)
        check_number("the lr_scale of a group", self.lr_scale)

    def fits(self, name: str, dimensions: int) -> bool:
        """Whether a parameter is of this group, unless an earlier one has it."""
        return dimensions <= self.most_dimensions and any(fnmatchcase(name, p) for p in self.names)


NO_DECAY: Final = Group(most_dimensions=1, weight_decay=0.0)
"""Leaves biases and the parameters of norms without weight decay."""


def check_groups(groups: object) -> None:
    """Raise MisuseError unless ``groups`` are a tuple of groups."""
    if not isinstance(groups, tuple) or len(groups) > MAX_GROUPS or not all(map(_is_group, groups)):
        raise MisuseError(f"the groups of an optimizer are a tuple of at most {MAX_GROUPS} Group(...)")


def _is_group(value: object) -> bool:
    return isinstance(value, Group)


def check_used(groups: Iterable[Group], trained: Iterable[tuple[str, int]]) -> None:
    """Raise MisuseError for a group of which no parameter is; ``trained`` are names and dimensions."""
    known = list(groups)
    used = {
        next((number for number, group in enumerate(known) if group.fits(name, dimensions)), None)
        for name, dimensions in trained
    }
    for number, group in enumerate(known):
        if number not in used:
            raise MisuseError(
                f"the optimizer's {group} has no trained parameter that is in no group before it: its names "
                "are patterns for those of named_parameters()"
            )


def group_to_manifest(group: Group) -> manifest.Group:
    """The manifest's form of ``group``."""
    decay = group.weight_decay
    return manifest.Group(
        names=group.names,
        most_dimensions=group.most_dimensions,
        weight_decay=None if decay is None else float(decay),
        lr_scale=float(group.lr_scale),
    )


def group_from_manifest(spec: manifest.Group) -> Group:
    """What the author wrote, from the manifest's form."""
    return Group(
        names=spec.names,
        most_dimensions=spec.most_dimensions,
        weight_decay=spec.weight_decay,
        lr_scale=spec.lr_scale,
    )


def grouped(
    groups: Iterable[Group], parameters: Iterable[tuple[str, torch.Tensor]]
) -> list[tuple[Group, list[torch.Tensor]]]:
    """The parameters (name, tensor) of each group, last those of none with one that changes nothing."""
    rest = Group()
    found: list[tuple[Group, list[torch.Tensor]]] = [(group, []) for group in (*groups, rest)]
    for name, tensor in parameters:
        next(members for group, members in found if group.fits(name, tensor.dim())).append(tensor)
    return [(group, members) for group, members in found if members]
