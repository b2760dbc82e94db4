"""The first contract of decision D5: the author's module, trained by PyTorch alone.

Nothing here is shared with the swarm's own way of training but which samples a micro-batch has: gradients
come from ``Tensor.backward``, updates, schedules and clipping from ``torch.optim`` and ``torch.nn.utils``.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.optim import lr_scheduler

from swarm.errors import MisuseError
from swarm.train.capture import Loss, set_mode
from swarm.train.job import TrainingJob
from swarm.train.optimizer import SGD, Constant, Linear, Optimizer
from swarm.train.samples import Array

Batches = Callable[[int, int], NDArray[np.int64]]
"""The samples of (step, micro-batch), by their indices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EagerRun:
    """What training came to."""

    losses: tuple[float, ...]
    """Mean over the micro-batches, of each step."""
    module: nn.Module
    """A trained copy of the author's module."""
    loss: Loss | None
    """The copy of the loss that it was trained with."""


def train_eagerly(job: TrainingJob, samples: Sequence[Array], *, batches: Batches) -> EagerRun:
    """Train a copy of ``job``'s model on ``samples`` (one array a field), on the device where it is.

    Raises MisuseError where the model cannot be copied.
    """
    try:
        module, loss = copy.deepcopy((job.model, job.loss))
    except (RuntimeError, TypeError) as error:
        raise MisuseError(f"the model cannot be copied, which --verify needs: {error}") from error
    set_mode(module, "train")
    parameters = [parameter for parameter in _parameters(module, loss) if parameter.requires_grad]
    optimizer = _optimizer(job.optimizer, parameters)
    scheduler = _scheduler(job.optimizer, optimizer, job.steps)
    losses = []
    for step in range(job.steps):
        total = 0.0
        optimizer.zero_grad()
        for micro_batch in range(job.micro_batches):
            value = _loss(module, loss, samples, batches(step, micro_batch))
            (value / job.micro_batches).backward()  # type: ignore[no-untyped-call]
            total += value.item()
        if job.optimizer.clip_norm > 0:
            nn.utils.clip_grad_norm_(parameters, job.optimizer.clip_norm)
        optimizer.step()
        scheduler.step()
        losses.append(total / job.micro_batches)
    return EagerRun(losses=tuple(losses), module=module, loss=loss)


def held_out_loss(
    module: nn.Module, loss: Loss | None, samples: Sequence[Array], micro_batch_size: int
) -> float:
    """The mean loss of ``module``, in evaluation mode, over full micro-batches of ``samples`` in order.

    The swarm evaluates with static shapes, so what remains after floor(n / micro_batch_size) micro-batches is
    measured by neither. The module is left in the mode that it was in.
    """
    count = len(samples[0]) // micro_batch_size
    flags = [(part, part.training) for part in module.modules()]
    set_mode(module, "evaluate")
    try:
        with torch.no_grad():
            total = sum(
                _loss(module, loss, samples, np.arange(first, first + micro_batch_size)).item()
                for first in range(0, count * micro_batch_size, micro_batch_size)
            )
    finally:
        for part, flag in flags:
            part.training = flag
    return total / count


def _parameters(module: nn.Module, loss: Loss | None) -> list[nn.Parameter]:
    own = list(module.parameters())
    return own + [p for p in (loss.parameters() if isinstance(loss, nn.Module) else ()) if p not in set(own)]


def _loss(
    module: nn.Module, loss: Loss | None, samples: Sequence[Array], indices: NDArray[np.int64]
) -> torch.Tensor:
    device = next((tensor.device for tensor in module.parameters()), torch.device("cpu"))
    fields = [torch.from_numpy(field[indices]).to(device) for field in samples]
    if loss is not None:
        return loss(module(*fields[:-1]), fields[-1])
    result = module(*fields)
    if isinstance(result, torch.Tensor):
        return result
    value: torch.Tensor = result["loss"] if isinstance(result, dict) else result[0]
    return value


def _optimizer(chosen: Optimizer, parameters: Sequence[nn.Parameter]) -> torch.optim.Optimizer:
    if isinstance(chosen, SGD):
        return torch.optim.SGD(
            parameters,
            lr=chosen.lr,
            momentum=chosen.momentum,
            dampening=chosen.dampening,
            weight_decay=chosen.weight_decay,
            nesterov=chosen.nesterov,
        )
    return torch.optim.AdamW(
        parameters, lr=chosen.lr, betas=chosen.betas, eps=chosen.eps, weight_decay=chosen.weight_decay
    )


def _scheduler(chosen: Optimizer, optimizer: torch.optim.Optimizer, steps: int) -> lr_scheduler.LRScheduler:
    schedule = chosen.schedule
    rest = max(steps - schedule.warmup, 1)
    main: lr_scheduler.LRScheduler
    if isinstance(schedule, Constant):
        main = lr_scheduler.ConstantLR(optimizer, factor=1.0, total_iters=0)
    elif isinstance(schedule, Linear):
        main = lr_scheduler.LinearLR(optimizer, 1.0, schedule.floor, total_iters=rest)
    else:
        main = lr_scheduler.CosineAnnealingLR(optimizer, T_max=rest, eta_min=chosen.lr * schedule.floor)
    if schedule.warmup < 2:
        return main
    rise = lr_scheduler.LinearLR(optimizer, 1.0 / schedule.warmup, 1.0, total_iters=schedule.warmup - 1)
    return lr_scheduler.SequentialLR(optimizer, [rise, main], milestones=[schedule.warmup])
