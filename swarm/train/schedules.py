"""Learning-rate schedules: what the author writes, what the manifest keeps, and the factor of each step."""

import math
from dataclasses import dataclass
from typing import Final, get_args

from swarm.errors import MisuseError
from swarm.train.settings import check_number
from swarm.wire.limits import MAX_STEPS
from swarm.wire.records import manifest


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
        check_number("floor", self.floor, at_most=1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cosine:
    """Half a cosine after the warm-up, towards ``floor`` times the learning rate at the end of the run.

    Source: Loshchilov and Hutter, SGDR, arXiv 1608.03983, equation 5 without restarts.
    """

    warmup: int = 0
    floor: float = 0.0

    def __post_init__(self) -> None:
        _check_warmup(self.warmup)
        check_number("floor", self.floor, at_most=1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """After the warm-up, times ``factor`` after each ``every`` steps, as torch's ``StepLR`` has it."""

    every: int
    factor: float = 0.1
    warmup: int = 0

    def __post_init__(self) -> None:
        _check_warmup(self.warmup)
        check_number("factor", self.factor, at_most=1.0)
        if not _is_steps(self.every) or self.every == 0:
            raise MisuseError(f"every is a number of steps, 1 or more, and not {self.every!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class InverseSqrt:
    """The linear rise of the warm-up, then a fall with the inverse square root of the step.

    Step s after a warm-up of w steps has the factor sqrt(w / (s + 1)), so the two meet at 1. Without a
    warm-up w counts as 1. Source: Vaswani et al., Attention is all you need, arXiv 1706.03762, equation 3.
    """

    warmup: int = 0

    def __post_init__(self) -> None:
        _check_warmup(self.warmup)


Schedule = Constant | Linear | Cosine | Step | InverseSqrt

_KINDS: Final = {
    Constant: "constant",
    Linear: "linear",
    Cosine: "cosine",
    Step: "step",
    InverseSqrt: "inverse_sqrt",
}


def check_schedule(schedule: object) -> None:
    """Raise MisuseError unless ``schedule`` is one."""
    if not isinstance(schedule, get_args(Schedule)):
        names = [f"{kind.__name__}(...)" for kind in _KINDS]
        raise MisuseError(f"the schedule of an optimizer is {', '.join(names[:-1])} or {names[-1]}")


def schedule_to_manifest(schedule: Schedule) -> manifest.Schedule:
    """The manifest's form of ``schedule``."""
    match schedule:
        case Constant():
            return manifest.Schedule(kind="constant", warmup=schedule.warmup, floor=1.0)
        case Linear():
            return manifest.Schedule(kind="linear", warmup=schedule.warmup, floor=float(schedule.floor))
        case Cosine():
            return manifest.Schedule(kind="cosine", warmup=schedule.warmup, floor=float(schedule.floor))
        case Step():
            return manifest.Schedule(
                kind="step",
                warmup=schedule.warmup,
                floor=0.0,
                every=schedule.every,
                factor=float(schedule.factor),
            )
        case InverseSqrt():
            return manifest.Schedule(kind="inverse_sqrt", warmup=schedule.warmup, floor=0.0)


def schedule_from_manifest(spec: manifest.Schedule) -> Schedule:
    """What the author wrote, from the manifest's form."""
    match spec.kind:
        case "constant":
            return Constant(warmup=spec.warmup)
        case "linear":
            return Linear(warmup=spec.warmup, floor=spec.floor)
        case "cosine":
            return Cosine(warmup=spec.warmup, floor=spec.floor)
        case "step":
            return Step(every=spec.every, factor=spec.factor, warmup=spec.warmup)
        case "inverse_sqrt":
            return InverseSqrt(warmup=spec.warmup)


def learning_rate(spec: manifest.Optimizer, step: int, steps: int) -> float:
    """The learning rate of the optimizer update that ends step ``step`` (from 0) of a run of ``steps``.

    During the warm-up the factor is (step + 1) / warmup; after it a fraction t = (step - warmup) / (steps -
    warmup) of the fall is done. Both are torch's: ``LinearLR`` from 1 / warmup, then ``LinearLR``,
    ``CosineAnnealingLR`` or ``StepLR`` over the remaining steps.
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
        case "step":
            factor = schedule.factor ** ((step - schedule.warmup) // schedule.every)
        case "inverse_sqrt":
            factor = math.sqrt(max(schedule.warmup, 1) / (step + 1))
    return spec.lr * factor


def _check_warmup(warmup: object) -> None:
    if not _is_steps(warmup):
        raise MisuseError(f"warmup is a number of steps, 0 or more, and not {warmup!r}")


def _is_steps(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_STEPS
