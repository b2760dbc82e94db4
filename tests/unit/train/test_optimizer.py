"""Optimizers and schedules: torch's own meaning, and no loss on the way through the manifest."""

import dataclasses

import pytest
import torch
from torch.optim import lr_scheduler

from swarm.errors import MisuseError
from swarm.train.optimizer import (
    SGD,
    AdamW,
    Constant,
    Cosine,
    Linear,
    Optimizer,
    Schedule,
    build,
    from_manifest,
    learning_rate,
    set_learning_rate,
    to_manifest,
)

CHOICES: list[Optimizer] = [
    SGD(lr=0.1),
    SGD(lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-4, schedule=Linear(warmup=3, floor=0.1)),
    SGD(lr=1, momentum=0.5, dampening=0.25, clip_norm=1.0, schedule=Constant(warmup=2)),
    AdamW(lr=1e-3),
    AdamW(lr=3e-4, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.1, clip_norm=0.5, schedule=Cosine(warmup=5)),
]


@pytest.mark.parametrize("optimizer", CHOICES)
def test_the_manifest_keeps_every_setting(optimizer: Optimizer) -> None:
    assert from_manifest(to_manifest(optimizer)) == optimizer


@pytest.mark.parametrize("warmup", [0, 2, 5])
@pytest.mark.parametrize("kind", [Constant, Linear, Cosine])
def test_rates_are_those_of_torchs_schedulers(kind: type[Schedule], warmup: int) -> None:
    steps = 20
    schedule = kind(warmup=warmup) if kind is Constant else kind(warmup=warmup, floor=0.1)
    spec = to_manifest(AdamW(lr=0.5, schedule=schedule))
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.5)
    main: lr_scheduler.LRScheduler
    if kind is Constant:
        main = lr_scheduler.ConstantLR(optimizer, factor=1.0)
    elif kind is Linear:
        main = lr_scheduler.LinearLR(optimizer, 1.0, 0.1, total_iters=steps - warmup)
    else:
        main = lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps - warmup, eta_min=0.05)
    if warmup:
        rise = lr_scheduler.LinearLR(optimizer, 1 / warmup, 1.0, total_iters=warmup - 1)
        main = lr_scheduler.SequentialLR(optimizer, [rise, main], milestones=[warmup])
    expected = []
    for _ in range(steps):
        expected.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        main.step()
    assert [learning_rate(spec, step, steps) for step in range(steps)] == pytest.approx(expected, rel=1e-12)


def test_a_schedule_ends_above_its_floor_and_would_reach_it_at_the_end() -> None:
    for schedule in (Linear(floor=0.2), Cosine(floor=0.2)):
        spec = to_manifest(SGD(lr=1.0, schedule=schedule))
        assert learning_rate(spec, 9, 10) > 0.2
        assert learning_rate(spec, 10, 10) == pytest.approx(0.2)


def test_a_warm_up_longer_than_the_run_only_rises() -> None:
    spec = to_manifest(SGD(lr=1.0, schedule=Cosine(warmup=10)))
    assert [learning_rate(spec, step, 4) for step in range(4)] == pytest.approx([0.1, 0.2, 0.3, 0.4])


@pytest.mark.parametrize("optimizer", CHOICES)
def test_updates_are_torchs_with_the_same_settings(optimizer: Optimizer) -> None:
    ours, theirs = (torch.linspace(-1, 1, 5, requires_grad=True) for _ in range(2))
    settings = {
        f.name: getattr(optimizer, f.name)
        for f in dataclasses.fields(optimizer)
        if f.name not in {"schedule", "clip_norm"}
    }
    kind = torch.optim.SGD if isinstance(optimizer, SGD) else torch.optim.AdamW
    reference = kind([theirs], foreach=False, **settings)
    built = build(to_manifest(optimizer), [ours])
    for step in range(3):
        for rate in (built, reference):
            set_learning_rate(rate, 0.1 / (step + 1))
        ours.grad = theirs.grad = torch.arange(5.0) * (step + 1)
        built.step()
        reference.step()
    assert torch.equal(ours, theirs)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: SGD(lr=-1), "lr must be a number of at least 0 and at most 1e+300, and not -1"),
        (lambda: SGD(lr="fast"), "lr must be a number of at least 0 and at most 1e+300, and not 'fast'"),
        (lambda: SGD(lr=float("nan")), "lr must be a number of at least 0 and at most 1e+300, and not nan"),
        (lambda: SGD(lr=1, nesterov=True), "nesterov needs a momentum and no dampening"),
        (lambda: SGD(lr=1, dampening=None), "dampening must be a number, and not None"),
        (
            lambda: AdamW(lr=1, betas=(0.9, 1.0)),
            "each of betas must be a number of at least 0 and below 1, and not 1.0",
        ),
        (lambda: AdamW(lr=1, betas=(0.9,)), "betas are two numbers, and not (0.9,)"),
        (
            lambda: AdamW(lr=1, schedule="cosine"),
            "the schedule of an optimizer is Constant(...), Linear(...) or Cosine(...)",
        ),
        (lambda: Cosine(warmup=-1), "warmup is a number of steps, 0 or more, and not -1"),
        (lambda: Linear(floor=2), "floor must be a number of at least 0 and at most 1, and not 2"),
    ],
)
def test_settings_that_make_no_sense_are_refused_in_one_line(make: object, sentence: str) -> None:
    with pytest.raises(MisuseError) as caught:
        make()  # type: ignore[operator]
    assert str(caught.value) == sentence
