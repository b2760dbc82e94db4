"""Optimizers and schedules: torch's own meaning, and no loss on the way through the manifest."""

import dataclasses

import pytest
import torch
from torch.optim import lr_scheduler

from swarm.errors import MisuseError
from swarm.train.optimizer import (
    NO_DECAY,
    SGD,
    Adam,
    AdamW,
    Constant,
    Cosine,
    Group,
    InverseSqrt,
    Linear,
    Optimizer,
    Schedule,
    Step,
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
    Adam(lr=1e-2, betas=(0.7, 0.9), eps=1e-7, weight_decay=0.1, schedule=InverseSqrt(warmup=4)),
    SGD(lr=0.1, schedule=Step(every=2, factor=0.5, warmup=1), groups=(NO_DECAY, Group(names=("a*", "b")))),
]


@pytest.mark.parametrize("optimizer", CHOICES)
def test_the_manifest_keeps_every_setting(optimizer: Optimizer) -> None:
    assert from_manifest(to_manifest(optimizer)) == optimizer


@pytest.mark.parametrize("warmup", [0, 2, 5])
@pytest.mark.parametrize("kind", [Constant, Linear, Cosine, Step])
def test_rates_are_those_of_torchs_schedulers(kind: type[Schedule], warmup: int) -> None:
    steps = 20
    settings: dict[type, dict[str, float]] = {Constant: {}, Step: {"every": 3, "factor": 0.5}}
    schedule = kind(warmup=warmup, **settings.get(kind, {"floor": 0.1}))  # type: ignore[arg-type]
    spec = to_manifest(AdamW(lr=0.5, schedule=schedule))
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.5)
    main: lr_scheduler.LRScheduler
    if kind is Constant:
        main = lr_scheduler.ConstantLR(optimizer, factor=1.0)
    elif kind is Linear:
        main = lr_scheduler.LinearLR(optimizer, 1.0, 0.1, total_iters=steps - warmup)
    elif kind is Step:
        main = lr_scheduler.StepLR(optimizer, step_size=3, gamma=0.5)
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


@pytest.mark.parametrize("warmup", [0, 1, 4])
def test_the_inverse_square_root_is_that_of_the_formula_and_meets_the_warm_up(warmup: int) -> None:
    spec = to_manifest(SGD(lr=2.0, schedule=InverseSqrt(warmup=warmup)))
    start = max(warmup, 1)
    expected = [2.0 * min((s + 1) / start, (start / (s + 1)) ** 0.5) for s in range(12)]
    assert [learning_rate(spec, step, 12) for step in range(12)] == pytest.approx(expected, rel=1e-12)


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
        if f.name not in {"schedule", "clip_norm", "groups"}
    }
    kind = getattr(torch.optim, type(optimizer).__name__)
    reference = kind([theirs], foreach=False, **settings)
    built = build(to_manifest(dataclasses.replace(optimizer, groups=())), [("weight", ours)])
    for step in range(3):
        set_learning_rate(built, 0.1 / (step + 1))
        reference.param_groups[0]["lr"] = 0.1 / (step + 1)
        ours.grad = theirs.grad = torch.arange(5.0) * (step + 1)
        built.step()
        reference.step()
    assert torch.equal(ours, theirs)


def test_the_first_group_that_fits_a_parameter_sets_its_decay_and_scales_its_rate() -> None:
    groups = (
        NO_DECAY,
        Group(names=("head.*",), weight_decay=0.5, lr_scale=0.1),
        Group(names=("*.weight",), lr_scale=2.0),
    )
    tensors = {
        name: torch.ones(shape, requires_grad=True)
        for name, shape in {
            "head.weight": (2, 2), "head.bias": (2,), "body.weight": (2, 2), "body.kernel": (2, 2)
        }.items()
    }  # fmt: skip
    optimizer = build(to_manifest(AdamW(lr=1.0, weight_decay=0.25, groups=groups)), tensors.items())
    set_learning_rate(optimizer, 0.5)
    names = {id(tensor): name for name, tensor in tensors.items()}
    found = {
        names[id(tensor)]: (group["lr"], group["weight_decay"])
        for group in optimizer.param_groups
        for tensor in group["params"]
    }
    assert found == {
        "head.weight": (0.05, 0.5),
        "head.bias": (0.5, 0.0),
        "body.weight": (1.0, 0.25),
        "body.kernel": (0.5, 0.25),
    }


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
            (
                "the schedule of an optimizer is Constant(...), Linear(...), Cosine(...), Step(...) or "
                "InverseSqrt(...)"
            ),
        ),
        (lambda: Cosine(warmup=-1), "warmup is a number of steps, 0 or more, and not -1"),
        (lambda: Step(every=0), "every is a number of steps, 1 or more, and not 0"),
        (lambda: Step(every=2, factor=2), "factor must be a number of at least 0 and at most 1, and not 2"),
        (
            lambda: Group(names="*.bias"),
            "the names of a group are a tuple of 1 to 16 patterns, and not '*.bias'",
        ),
        (lambda: Group(most_dimensions=-1), "most_dimensions is from 0 to 64, and not -1"),
        (
            lambda: Group(weight_decay=-1),
            "the weight_decay of a group must be a number of at least 0 and at most 1e+300, and not -1",
        ),
        (
            lambda: SGD(lr=1, groups=[NO_DECAY]),
            "the groups of an optimizer are a tuple of at most 16 Group(...)",
        ),
        (lambda: Linear(floor=2), "floor must be a number of at least 0 and at most 1, and not 2"),
    ],
)
def test_settings_that_make_no_sense_are_refused_in_one_line(make: object, sentence: str) -> None:
    with pytest.raises(MisuseError) as caught:
        make()  # type: ignore[operator]
    assert str(caught.value) == sentence
