"""Optimizers and their learning-rate schedules: what the author writes, the manifest keeps, and torch runs.

The step rule is torch's own. Its fused and multi-tensor forms are off, because they sum in another order, and
a stage must come to the same bits as one process does (decision D5).
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, TypeGuard

import torch

from swarm.errors import MisuseError, RemoteProtocolError
from swarm.wire.limits import MAX_STEPS
from swarm.wire.records import manifest

LARGEST: Final = 1e300
"""The manifest's bound on every setting."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant:
    """The same learning rate at every step after ``warmup`` steps of a linear rise."""

    warmup: int = 0
    """Steps; step s of them has the factor (s + 1) / warmup."""

    def __post_init__(self) -> None:
        _check_warmup(self.warmup)


@dataclass(frozen=True, slots=True, kw_only=True)
class Linear:
    """A linear fall after the warm-up, towards ``floor`` times the learning rate at the end of the run."""

    warmup: int = 0
    floor: float = 0.0

    def __post_init__(self) -> None:
        _check_warmup(self.warmup)
        _check_number("floor", self.floor, at_most=1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cosine:
    """Half a cosine after the warm-up, towards ``floor`` times the learning rate at the end of the run.

    Source: Loshchilov and Hutter, SGDR, arXiv 1608.03983, equation 5 without restarts.
    """

    warmup: int = 0
    floor: float = 0.0

    def __post_init__(self) -> None:
        _check_warmup(self.warmup)
        _check_number("floor", self.floor, at_most=1.0)


Schedule = Constant | Linear | Cosine


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

    def __post_init__(self) -> None:
        _check_common(self)
        _check_number("momentum", self.momentum)
        if self.nesterov and (self.momentum == 0 or self.dampening != 0):
            raise MisuseError("nesterov needs a momentum and no dampening")
        if not _is_number(self.dampening) or not -LARGEST <= self.dampening <= LARGEST:
            raise MisuseError(f"dampening must be a number, and not {self.dampening!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class AdamW:
    """Adam with decoupled weight decay; each field means what it does in ``torch.optim.AdamW``."""

    lr: float
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.01
    schedule: Schedule = field(default_factory=Constant)
    clip_norm: float = 0.0
    """Largest norm of all gradients together; 0 does not clip."""

    def __post_init__(self) -> None:
        _check_common(self)
        if len(self.betas) != 2:
            raise MisuseError(f"betas are two numbers, and not {self.betas!r}")
        for beta in self.betas:
            _check_number("each of betas", beta, below=1.0)
        _check_number("eps", self.eps)


Optimizer = SGD | AdamW


def to_manifest(optimizer: Optimizer) -> manifest.Optimizer:
    """The manifest's form of ``optimizer``."""
    chosen = optimizer.schedule
    schedule = manifest.Schedule(
        kind="constant"
        if isinstance(chosen, Constant)
        else "linear"
        if isinstance(chosen, Linear)
        else "cosine",
        warmup=chosen.warmup,
        floor=1.0 if isinstance(chosen, Constant) else float(chosen.floor),
    )
    match optimizer:
        case SGD():
            return manifest.Optimizer(
                kind="sgd",
                lr=float(optimizer.lr),
                schedule=schedule,
                weight_decay=float(optimizer.weight_decay),
                momentum=float(optimizer.momentum),
                dampening=float(optimizer.dampening),
                nesterov=optimizer.nesterov,
                clip_norm=float(optimizer.clip_norm),
            )
        case AdamW():
            return manifest.Optimizer(
                kind="adamw",
                lr=float(optimizer.lr),
                schedule=schedule,
                weight_decay=float(optimizer.weight_decay),
                betas=(float(optimizer.betas[0]), float(optimizer.betas[1])),
                eps=float(optimizer.eps),
                clip_norm=float(optimizer.clip_norm),
            )


def from_manifest(spec: manifest.Optimizer) -> Optimizer:
    """What the author wrote, from the manifest's form; raises MisuseError for what no author may write."""
    schedule: Schedule
    match spec.schedule.kind:
        case "constant":
            schedule = Constant(warmup=spec.schedule.warmup)
        case "linear":
            schedule = Linear(warmup=spec.schedule.warmup, floor=spec.schedule.floor)
        case "cosine":
            schedule = Cosine(warmup=spec.schedule.warmup, floor=spec.schedule.floor)
    if spec.kind == "sgd":
        return SGD(
            lr=spec.lr,
            momentum=spec.momentum,
            dampening=spec.dampening,
            weight_decay=spec.weight_decay,
            nesterov=spec.nesterov,
            schedule=schedule,
            clip_norm=spec.clip_norm,
        )
    return AdamW(
        lr=spec.lr,
        betas=spec.betas,
        eps=spec.eps,
        weight_decay=spec.weight_decay,
        schedule=schedule,
        clip_norm=spec.clip_norm,
    )


def learning_rate(spec: manifest.Optimizer, step: int, steps: int) -> float:
    """The learning rate of the optimizer update that ends step ``step`` (from 0) of a run of ``steps``.

    During the warm-up the factor is (step + 1) / warmup; after it a fraction t = (step - warmup) / (steps -
    warmup) of the fall is done. Both are torch's: ``LinearLR`` from 1 / warmup, then ``LinearLR`` or
    ``CosineAnnealingLR`` over the remaining steps.
    """
    schedule = spec.schedule
    if step < schedule.warmup:
        return spec.lr * (step + 1) / schedule.warmup
    done = (step - schedule.warmup) / max(steps - schedule.warmup, 1)
    match schedule.kind:
        case "constant":
            factor = 1.0
        case "linear":
            factor = 1.0 - (1.0 - schedule.floor) * done
        case "cosine":
            factor = schedule.floor + (1.0 - schedule.floor) * (1.0 + math.cos(math.pi * done)) / 2.0
    return spec.lr * factor


def build(spec: manifest.Optimizer, parameters: Iterable[torch.Tensor]) -> torch.optim.Optimizer:
    """torch's optimizer over ``parameters`` (leaves that require gradients), one update at a time.

    Raises RemoteProtocolError for settings that no author may write.
    """
    try:
        from_manifest(spec)
    except MisuseError as error:
        raise RemoteProtocolError(f"the job's optimizer is none: {error}") from None
    match spec.kind:
        case "sgd":
            return torch.optim.SGD(
                parameters,
                lr=spec.lr,
                momentum=spec.momentum,
                dampening=spec.dampening,
                weight_decay=spec.weight_decay,
                nesterov=spec.nesterov,
                foreach=False,
                fused=False,
            )
        case "adamw":
            return torch.optim.AdamW(
                parameters,
                lr=spec.lr,
                betas=spec.betas,
                eps=spec.eps,
                weight_decay=spec.weight_decay,
                foreach=False,
                fused=False,
            )


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Use ``rate`` for the updates that follow."""
    for group in optimizer.param_groups:
        group["lr"] = rate


def _check_common(optimizer: Optimizer) -> None:
    _check_number("lr", optimizer.lr)
    _check_number("weight_decay", optimizer.weight_decay)
    _check_number("clip_norm", optimizer.clip_norm)
    if not isinstance(optimizer.schedule, Constant | Linear | Cosine):
        raise MisuseError("the schedule of an optimizer is Constant(...), Linear(...) or Cosine(...)")


def _check_warmup(warmup: object) -> None:
    if not isinstance(warmup, int) or isinstance(warmup, bool) or not 0 <= warmup <= MAX_STEPS:
        raise MisuseError(f"warmup is a number of steps, 0 or more, and not {warmup!r}")


def _check_number(name: str, value: object, *, at_most: float = LARGEST, below: float = math.inf) -> None:
    if not _is_number(value) or not 0.0 <= value <= at_most or value >= below:
        bound = f"below {below:g}" if below < math.inf else f"at most {at_most:g}"
        raise MisuseError(f"{name} must be a number of at least 0 and {bound}, and not {value!r}")


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
