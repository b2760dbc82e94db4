"""The first contract of decision D5: the author's module, trained by PyTorch alone.

Nothing here is shared with the swarm's own way of training but which samples a micro-batch has: gradients
come from ``Tensor.backward``, updates, schedules and clipping from ``torch.optim`` and ``torch.nn.utils``.
"""

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.optim import lr_scheduler
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from swarm.errors import MisuseError
from swarm.protocol.settlement import Validation
from swarm.train.capture import Loss, loss_and_outputs, set_mode
from swarm.train.capture.state import LOSS_TENSORS
from swarm.train.job import TrainingJob
from swarm.train.optimizer import (
    SGD,
    Adam,
    Constant,
    Cosine,
    Group,
    InverseSqrt,
    Linear,
    Optimizer,
    Step,
)
from swarm.train.samples import Array, field_names
from swarm.train.transforms import Draw, for_evaluation, micro_batch

Batches = Callable[[int, int], NDArray[np.int64]]
"""The samples of (step, micro-batch), by their indices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EagerRun:
    """What training came to."""

    losses: tuple[float, ...]
    """Mean over the micro-batches, of each step."""
    validations: tuple[Validation, ...]
    """Of held-out samples between two steps, as the job says."""
    module: nn.Module
    """A trained copy of the author's module."""
    loss: Loss | None
    """The copy of the loss that it was trained with."""
    average: nn.Module | None
    """The module with torch's average of its parameters, where the job keeps one."""


def train_eagerly(
    job: TrainingJob,
    samples: Sequence[Array],
    *,
    batches: Batches,
    held_out: Sequence[Array] = (),
) -> EagerRun:
    """Train a copy of ``job``'s model on ``samples`` (one array a field), on the device where it is.

    ``held_out`` are held-out samples, whose loss is measured between steps as the job says; none: it is not.
    Raises MisuseError where the model cannot be copied.
    """
    try:
        module, loss = copy.deepcopy((job.model, job.loss))
    except (RuntimeError, TypeError) as error:
        raise MisuseError(f"the model cannot be copied, which --verify needs: {error}") from error
    set_mode(module, "train")
    named = {name: tensor for name, tensor in _parameters(module, loss).items() if tensor.requires_grad}
    parameters = list(named.values())
    optimizer = _optimizer(job.optimizer, named)
    scheduler = _scheduler(job.optimizer, optimizer, job.steps)
    names = field_names(job.dataset)
    average = _average(module, job.ema)
    losses = []
    validations = []
    transforms = job.transforms_in_order()
    for step in range(job.steps):
        total = 0.0
        optimizer.zero_grad()
        for index in range(job.micro_batches):
            draw = Draw(seed=job.seed, step=step, samples=batches(step, index))
            fields = _fields(module, micro_batch(samples, transforms, draw))
            with job.autocast():
                value, _ = loss_and_outputs(module, loss, fields, names)
            (value / job.micro_batches).backward()
            total += value.item()
        if job.optimizer.clip_norm > 0:
            nn.utils.clip_grad_norm_(parameters, job.optimizer.clip_norm)
        optimizer.step()
        scheduler.step()
        if average is not None:
            average.update_parameters(module)
        losses.append(total / job.micro_batches)
        done = step + 1
        if held_out and job.validate_every and done % job.validate_every == 0 and done < job.steps:
            bound = job.validate_batches * job.micro_batch_size or len(held_out[0])
            drawn = Draw(seed=job.seed, step=0, samples=np.arange(min(bound, len(held_out[0]))))
            chosen = micro_batch(held_out, for_evaluation(transforms), drawn)
            with job.autocast():
                measured = held_out_loss(module, loss, chosen, job.micro_batch_size, names)
            validations.append(Validation(step=done, loss=measured))
    return EagerRun(
        losses=tuple(losses),
        validations=tuple(validations),
        module=module,
        loss=loss,
        average=None if average is None else average.module,
    )


def held_out_loss(
    module: nn.Module,
    loss: Loss | None,
    samples: Sequence[Array],
    micro_batch_size: int,
    names: Sequence[str] | None = None,
) -> float:
    """The mean loss of ``module``, in evaluation mode, over full micro-batches of ``samples`` in order.

    The swarm evaluates with static shapes, so what remains after floor(n / micro_batch_size) micro-batches is
    measured by neither. ``samples`` are as the model reads them: transformed. The module is left in the mode
    that it was in. ``names`` are those of the fields.
    """
    count = len(samples[0]) // micro_batch_size
    flags = [(part, part.training) for part in module.modules()]
    set_mode(module, "evaluate")
    try:
        with torch.no_grad():
            total = 0.0
            for first in range(0, count * micro_batch_size, micro_batch_size):
                fields = _fields(module, [field[first : first + micro_batch_size] for field in samples])
                total += float(loss_and_outputs(module, loss, fields, names)[0])
    finally:
        for part, flag in flags:
            part.training = flag
    return total / count


def _parameters(module: nn.Module, loss: Loss | None) -> dict[str, nn.Parameter]:
    """The parameters of the model and its loss by name, each once."""
    found = dict(module.named_parameters())
    own = set(found.values())
    if isinstance(loss, nn.Module):
        found |= {f"{LOSS_TENSORS}{name}": p for name, p in loss.named_parameters() if p not in own}
    return found


def _fields(module: nn.Module, items: Sequence[Array]) -> list[torch.Tensor]:
    device = next((tensor.device for tensor in module.parameters()), torch.device("cpu"))
    return [torch.from_numpy(field.copy()).to(device) for field in items]


def _optimizer(chosen: Optimizer, named: Mapping[str, nn.Parameter]) -> torch.optim.Optimizer:
    groups = []
    for name, parameter in named.items():
        own = next((group for group in chosen.groups if group.fits(name, parameter.dim())), Group())
        decay = chosen.weight_decay if own.weight_decay is None else own.weight_decay
        groups.append({"params": [parameter], "lr": chosen.lr * own.lr_scale, "weight_decay": decay})
    if isinstance(chosen, SGD):
        return torch.optim.SGD(
            groups,
            lr=chosen.lr,
            momentum=chosen.momentum,
            dampening=chosen.dampening,
            nesterov=chosen.nesterov,
        )
    kind = torch.optim.Adam if isinstance(chosen, Adam) else torch.optim.AdamW
    return kind(groups, lr=chosen.lr, betas=chosen.betas, eps=chosen.eps)


def _average(module: nn.Module, decay: float) -> AveragedModel | None:
    if decay == 0:
        return None
    return AveragedModel(module, multi_avg_fn=get_ema_multi_avg_fn(decay))  # type: ignore[no-untyped-call]


def _scheduler(chosen: Optimizer, optimizer: torch.optim.Optimizer, steps: int) -> lr_scheduler.LRScheduler:
    schedule = chosen.schedule
    rest = max(steps - schedule.warmup, 1)
    main: lr_scheduler.LRScheduler
    match schedule:
        case Constant():
            main = lr_scheduler.ConstantLR(optimizer, factor=1.0, total_iters=0)
        case Linear():
            main = lr_scheduler.LinearLR(optimizer, 1.0, schedule.floor, total_iters=rest)
        case Cosine():
            main = lr_scheduler.LambdaLR(
                optimizer,
                lambda done: (
                    schedule.floor + (1 - schedule.floor) * (1 + math.cos(math.pi * done / rest)) / 2
                ),
            )
        case Step():
            main = lr_scheduler.StepLR(optimizer, step_size=schedule.every, gamma=schedule.factor)
        case InverseSqrt():
            start = max(schedule.warmup, 1)
            main = lr_scheduler.LambdaLR(
                optimizer, lambda done: math.sqrt(start / (schedule.warmup + done + 1))
            )
    if schedule.warmup < 2:
        return main
    rise = lr_scheduler.LinearLR(optimizer, 1.0 / schedule.warmup, 1.0, total_iters=schedule.warmup - 1)
    return lr_scheduler.SequentialLR(optimizer, [rise, main], milestones=[schedule.warmup])
