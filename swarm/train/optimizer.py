"""Optimizers and their learning-rate schedules: what the author writes, the manifest keeps, and torch runs.

The step rule is torch's own. Its fused and multi-tensor forms are off, because they sum in another order, and
a stage must come to the same bits as one process does (decision D5).
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
from msgspec.structs import replace

from swarm.errors import MisuseError, RemoteProtocolError
from swarm.train.groups import (
    NO_DECAY,
    Group,
    check_groups,
    group_from_manifest,
    group_to_manifest,
    grouped,
)
from swarm.train.schedules import (
    Constant,
    Cosine,
    InverseSqrt,
    Linear,
    Schedule,
    Step,
    check_schedule,
    learning_rate,
    schedule_from_manifest,
    schedule_to_manifest,
)
from swarm.train.settings import LARGEST, check_number, is_number
from swarm.wire.records import manifest

__all__ = [
    "NO_DECAY",
    "SGD",
    "Adam",
    "AdamW",
    "Constant",
    "Cosine",
    "Group",
    "InverseSqrt",
    "Linear",
    "Optimizer",
    "Schedule",
    "Step",
    "build",
    "from_manifest",
    "learning_rate",
    "set_learning_rate",
    "to_manifest",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class SGD:
    """Stochastic gradient descent; each field means what it does in ``torch.optim.SGD``."""

    lr: float
    momentum: float = 0.0
    dampening: float = 0.0
    weight_decay: float = 0.0
    nesterov: bool = False
    schedule: Schedule = field(default_factory=Constant)
    clip_norm: float = 0.0
    """Largest norm of all gradients together; 0 does not clip."""
    groups: tuple[Group, ...] = ()
    """Settings of their own for some parameters; the first group that fits a parameter counts."""

    def __post_init__(self) -> None:
        _check_common(self)
        check_number("momentum", self.momentum)
        if self.nesterov and (self.momentum == 0 or self.dampening != 0):
            raise MisuseError("nesterov needs a momentum and no dampening")
        if not is_number(self.dampening) or not -LARGEST <= self.dampening <= LARGEST:
            raise MisuseError(f"dampening must be a number, and not {self.dampening!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Moments:
    """What Adam and AdamW have in common."""

    lr: float
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    schedule: Schedule = field(default_factory=Constant)
    clip_norm: float = 0.0
    """Largest norm of all gradients together; 0 does not clip."""
    groups: tuple[Group, ...] = ()
    """Settings of their own for some parameters; the first group that fits a parameter counts."""

    def __post_init__(self) -> None:
        _check_common(self)
        _check_moments(self.betas, self.eps)


@dataclass(frozen=True, slots=True, kw_only=True)
class Adam(_Moments):
    """Adam with weight decay in the gradient; each field means what it does in ``torch.optim.Adam``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdamW(_Moments):
    """Adam with decoupled weight decay; each field means what it does in ``torch.optim.AdamW``."""

    weight_decay: float = 0.01


Optimizer = SGD | Adam | AdamW


def to_manifest(optimizer: Optimizer, *, ema: float = 0.0) -> manifest.Optimizer:
    """The manifest's form of ``optimizer``, with the average of what it trains."""
    common = manifest.Optimizer(
        kind="sgd",
        lr=float(optimizer.lr),
        schedule=schedule_to_manifest(optimizer.schedule),
        weight_decay=float(optimizer.weight_decay),
        clip_norm=float(optimizer.clip_norm),
        groups=tuple(group_to_manifest(group) for group in optimizer.groups),
        ema=float(ema),
    )
    match optimizer:
        case SGD():
            return replace(
                common,
                momentum=float(optimizer.momentum),
                dampening=float(optimizer.dampening),
                nesterov=optimizer.nesterov,
            )
        case Adam() | AdamW():
            return replace(
                common,
                kind="adam" if isinstance(optimizer, Adam) else "adamw",
                betas=(float(optimizer.betas[0]), float(optimizer.betas[1])),
                eps=float(optimizer.eps),
            )


def from_manifest(spec: manifest.Optimizer) -> Optimizer:
    """What the author wrote, from the manifest's form; raises MisuseError for what no author may write."""
    schedule = schedule_from_manifest(spec.schedule)
    groups = tuple(group_from_manifest(group) for group in spec.groups)
    if spec.kind == "sgd":
        return SGD(
            lr=spec.lr,
            momentum=spec.momentum,
            dampening=spec.dampening,
            weight_decay=spec.weight_decay,
            nesterov=spec.nesterov,
            schedule=schedule,
            clip_norm=spec.clip_norm,
            groups=groups,
        )
    kind = Adam if spec.kind == "adam" else AdamW
    return kind(
        lr=spec.lr,
        betas=spec.betas,
        eps=spec.eps,
        weight_decay=spec.weight_decay,
        schedule=schedule,
        clip_norm=spec.clip_norm,
        groups=groups,
    )


def build(spec: manifest.Optimizer, parameters: Iterable[tuple[str, torch.Tensor]]) -> torch.optim.Optimizer:
    """torch's optimizer over ``parameters`` (name, leaf that requires gradients), one update at a time.

    Raises RemoteProtocolError for settings that no author may write.
    """
    try:
        groups = from_manifest(spec).groups
    except MisuseError as error:
        raise RemoteProtocolError(f"the job's optimizer is none: {error}") from None
    found = [
        {
            "params": members,
            "weight_decay": spec.weight_decay if group.weight_decay is None else group.weight_decay,
            "lr_scale": group.lr_scale,
        }
        for group, members in grouped(groups, parameters)
    ]
    match spec.kind:
        case "sgd":
            return torch.optim.SGD(
                found,
                lr=spec.lr,
                momentum=spec.momentum,
                dampening=spec.dampening,
                nesterov=spec.nesterov,
                foreach=False,
                fused=False,
            )
        case "adam" | "adamw":
            kind = torch.optim.Adam if spec.kind == "adam" else torch.optim.AdamW
            return kind(found, lr=spec.lr, betas=spec.betas, eps=spec.eps, foreach=False, fused=False)


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Use ``rate``, times the scale of each group, for the updates that follow."""
    for group in optimizer.param_groups:
        group["lr"] = rate * group["lr_scale"]


def _check_common(optimizer: SGD | _Moments) -> None:
    check_number("lr", optimizer.lr)
    check_number("weight_decay", optimizer.weight_decay)
    check_number("clip_norm", optimizer.clip_norm)
    check_schedule(optimizer.schedule)
    check_groups(optimizer.groups)


def _check_moments(betas: tuple[float, float], eps: float) -> None:
    if len(betas) != 2:
        raise MisuseError(f"betas are two numbers, and not {betas!r}")
    for beta in betas:
        check_number("each of betas", beta, below=1.0)
    check_number("eps", eps)
