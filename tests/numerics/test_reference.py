"""The first contract of D5: the eager reference is PyTorch by the book, and our executor agrees with it."""

import copy
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from transformers import BertConfig, BertForSequenceClassification

from swarm.data.sampler import held_out_batches, held_out_indices, indices
from swarm.errors import MisuseError
from swarm.graph.cut import legal_bounds, trained_uses
from swarm.services.training.verify import TOLERANCE_BF16
from swarm.train.job import CapturedJob, TrainingJob, capture_job, load_job, prepare_samples
from swarm.train.lockstep import Lockstep, LockstepJob, LockstepRun, run_lockstep
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
    Step,
)
from swarm.train.reference import EagerRun, held_out_loss, train_eagerly
from swarm.train.samples import field_names

EXAMPLES = Path(__file__).parents[2] / "examples"


def sampler(job: TrainingJob, samples: int) -> Callable[[int, int], NDArray[np.int64]]:
    def batches(step: int, micro_batch: int) -> NDArray[np.int64]:
        return indices(
            samples,
            seed=job.seed,
            step=step,
            micro_batch=micro_batch,
            micro_batch_size=job.micro_batch_size,
            micro_batches=job.micro_batches,
        )

    return batches


def eagerly(job: TrainingJob) -> EagerRun:
    samples = prepare_samples(job.dataset)
    held_out = prepare_samples(job.held_out or job.dataset)
    return train_eagerly(job, samples, batches=sampler(job, len(samples[0])), held_out=held_out)


def lockstep_job(captured: CapturedJob, job: TrainingJob) -> LockstepJob:
    """The job for our own executor."""
    samples, held_out = prepare_samples(job.dataset), prepare_samples(job.held_out or job.dataset)
    batches = sampler(job, len(samples[0]))
    batches_held_out = held_out_batches(len(held_out[0]), job.micro_batch_size)
    return LockstepJob(
        graph=captured.train,
        evaluation=captured.evaluate,
        tensors=captured.tensors,
        optimizer=job.optimizer_spec(),
        micro_batches=job.micro_batches,
        steps=job.steps,
        seed=job.seed,
        batch=lambda step, micro_batch: {
            value: torch.from_numpy(field[batches(step, micro_batch)])
            for value, field in zip(captured.train.inputs(), samples, strict=True)
        },
        held_out=lambda micro_batch: {
            value: torch.from_numpy(field[held_out_indices(micro_batch, job.micro_batch_size)])
            for value, field in zip(captured.evaluate.inputs(), held_out, strict=True)
        },
        held_out_batches=batches_held_out,
        validate_every=job.validate_every,
        validation_batches=min(job.validate_batches or batches_held_out, batches_held_out),
    )


def in_stages(captured: CapturedJob, job: TrainingJob, stages: int = 1) -> LockstepRun:
    """The job by our own executor, cut into ``stages`` of about as many operators each."""
    legal = [position for position, allowed in enumerate(legal_bounds(captured.train)) if allowed]
    bounds = [legal[len(legal) * stage // stages] for stage in range(stages)] + [
        len(captured.train.operators)
    ]
    return run_lockstep(lockstep_job(captured, job), torch.device("cpu"), bounds)


def by_key(captured: CapturedJob, run: LockstepRun) -> dict[str, torch.Tensor]:
    """The trained tensors under the keys of the author's ``state_dict``."""
    return {key: run.tensors[name] for key, name in captured.state_dict.items()}


class Small(nn.Module):
    """Frozen, shared, normalised and unused parts at once."""

    def __init__(self) -> None:
        super().__init__()
        self.frozen = nn.Linear(4, 6).requires_grad_(requires_grad=False)
        self.shared = nn.Linear(6, 6)
        self.norm = nn.BatchNorm1d(6)
        self.head = nn.Linear(6, 3)
        self.unused = nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.tanh(self.shared(self.frozen(x)))
        return self.head(self.shared(self.norm(x)))


class LearnedLoss(nn.Module):
    """A loss with a parameter of its own, which is trained too."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(0.5))

    def forward(self, outputs: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(outputs * self.scale.exp(), target) + self.scale**2


def small_job(optimizer: Optimizer, **changes: Any) -> TrainingJob:
    torch.manual_seed(3)
    x = torch.randn(40, 4)
    settings: dict[str, Any] = {
        "model": Small(),
        "loss": functional.cross_entropy,
        "dataset": (x, x.sum(1).abs().long() % 3),
        "held_out": (x[:11] / 2, x[:11].sum(1).abs().long() % 3),
        "optimizer": optimizer,
        "micro_batch_size": 4,
        "micro_batches": 3,
        "steps": 8,
    }
    return TrainingJob(**(settings | changes))


def first(count: int, samples: Any) -> Any:
    """Fewer of the samples of an example."""
    if isinstance(samples, dict):
        return {name: field[:count] for name, field in samples.items()}
    return tuple(field[:count] for field in samples)


def example_job(name: str) -> TrainingJob:
    job = load_job(EXAMPLES / f"{name}.py")
    return TrainingJob(
        model=job.model,
        loss=job.loss,
        dataset=first(64, job.dataset),
        held_out=first(20, job.held_out),
        optimizer=job.optimizer,
        micro_batch_size=8,
        micro_batches=2,
        steps=4,
    )


def fine_tuning_job() -> TrainingJob:
    """A BERT of Hugging Face's whose embeddings and first layer are frozen, and whose classifier is new."""
    torch.manual_seed(5)
    sizes = {"vocab_size": 40, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2}
    dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    configuration = BertConfig(**sizes, **dropout, num_attention_heads=2, num_labels=3)
    model = BertForSequenceClassification(configuration)
    model.bert.embeddings.requires_grad_(requires_grad=False)
    model.bert.encoder.layer[0].requires_grad_(requires_grad=False)
    tokens = torch.randint(1, 40, (40, 9))
    lengths = torch.arange(40) % 6 + 4
    samples = {
        "input_ids": tokens,
        "attention_mask": (torch.arange(9) < lengths[:, None]).long(),
        "labels": tokens[:, 0] % 3,
    }
    return TrainingJob(
        model=model,
        loss=None,
        dataset=first(32, samples),
        held_out={name: field[32:] for name, field in samples.items()},
        optimizer=AdamW(lr=0.01, schedule=Linear(warmup=2), clip_norm=1.0, groups=(NO_DECAY,)),
        micro_batch_size=4,
        micro_batches=2,
        steps=6,
        validate_every=2,
    )


JOBS: dict[str, Callable[[], TrainingJob]] = {
    "gpt": lambda: example_job("gpt"),
    "resnet": lambda: example_job("resnet"),
    "huggingface": lambda: example_job("huggingface"),
    "huggingface, fine-tuned": fine_tuning_job,
    "sgd": lambda: small_job(SGD(lr=0.1)),
    "momentum": lambda: small_job(
        SGD(lr=0.1, momentum=0.9, dampening=0.1, weight_decay=0.01, schedule=Linear(warmup=2, floor=0.1))
    ),
    "nesterov, clipped": lambda: small_job(
        SGD(lr=0.1, momentum=0.9, nesterov=True, schedule=Constant(warmup=3), clip_norm=0.2)
    ),
    "adamw, clipped": lambda: small_job(AdamW(lr=0.01, schedule=Cosine(warmup=2), clip_norm=0.1)),
    "adam": lambda: small_job(Adam(lr=0.01, weight_decay=0.1, schedule=InverseSqrt(warmup=3))),
    "groups": lambda: small_job(
        SGD(
            lr=0.1,
            momentum=0.9,
            weight_decay=0.2,
            schedule=Step(every=2, factor=0.5, warmup=2),
            groups=(NO_DECAY, Group(names=("head.*", "(loss).*"), weight_decay=0.5, lr_scale=0.3)),
        ),
        loss=LearnedLoss(),
    ),
    "groups under a cosine": lambda: small_job(
        AdamW(lr=0.01, schedule=Cosine(warmup=2, floor=0.2), groups=(NO_DECAY, Group(lr_scale=0.5)))
    ),
    "learned loss": lambda: small_job(AdamW(lr=0.01), loss=LearnedLoss()),
    "validating": lambda: small_job(AdamW(lr=0.01), validate_every=3, validate_batches=1),
}


@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", JOBS)
def test_our_executor_agrees_with_pytorch_at_every_step(name: str) -> None:
    job = JOBS[name]()
    eager, captured = eagerly(job), capture_job(job)
    ours, apart = (in_stages(captured, job, stages) for stages in (1, 3))
    assert len(eager.losses) == job.steps
    assert list(ours.losses) == pytest.approx(list(eager.losses), rel=1e-5)
    assert apart.losses == ours.losses
    tensors = by_key(captured, ours)
    for key, expected in eager.module.state_dict().items():
        torch.testing.assert_close(
            tensors[key], expected, rtol=1e-4, atol=1e-5, msg=lambda text, k=key: f"{k}: {text}"
        )
    held_out = prepare_samples(job.held_out or job.dataset)
    names = field_names(job.dataset)
    expected_held_out = held_out_loss(eager.module, eager.loss, held_out, job.micro_batch_size, names)
    assert ours.held_out == pytest.approx(expected_held_out, rel=1e-5)
    assert apart.validations == ours.validations
    between = ours.validations[:-1]
    assert [v.step for v in between] == [v.step for v in eager.validations]
    assert [v.loss for v in between] == pytest.approx([v.loss for v in eager.validations], rel=1e-5)
    assert len(between) == (job.validate_every > 0 and (job.steps - 1) // job.validate_every)


@pytest.mark.parametrize(
    ("made", "parameters"), [(lambda: small_job(AdamW(lr=0.01)), 2), (fine_tuning_job, 21)]
)
def test_frozen_parameters_keep_their_bits_and_get_no_gradient(
    made: Callable[[], TrainingJob], parameters: int
) -> None:
    job = made()
    captured = capture_job(job)
    tensors = by_key(captured, in_stages(captured, job, 3))
    frozen = {key for key, tensor in job.model.named_parameters() if not tensor.requires_grad}
    assert len(frozen) == parameters
    assert all(torch.equal(tensors[key], job.model.state_dict()[key]) for key in frozen)
    assert not frozen & {captured.train.values[value].name for value in trained_uses(captured.train)}


def test_under_autocast_weights_stay_whole_and_the_curve_is_pytorchs_within_what_bfloat16_resolves() -> None:
    job = dataclasses.replace(example_job("gpt"), precision="bf16")
    eager, captured = eagerly(job), capture_job(job)
    assert {"bfloat16", "float32"} <= {value.spec.dtype for value in captured.train.values}
    ours, apart = (in_stages(captured, job, stages) for stages in (1, 3))
    assert list(ours.losses) == pytest.approx(list(eager.losses), rel=TOLERANCE_BF16)
    assert list(ours.losses) != list(eagerly(example_job("gpt")).losses)
    assert (apart.losses, apart.held_out) == (ours.losses, ours.held_out)
    assert all(torch.equal(tensor, apart.tensors[name]) for name, tensor in ours.tensors.items())
    trained = [captured.train.values[v].name for v in trained_uses(captured.train)]
    assert {ours.tensors[name].dtype for name in trained} == {torch.float32}


@pytest.mark.parametrize("optimizer", [SGD(lr=0.1, momentum=0.9), AdamW(lr=0.01, clip_norm=0.2)])
def test_an_average_is_torchs_and_has_the_same_bits_in_any_partition(optimizer: Optimizer) -> None:
    job = small_job(optimizer, ema=0.9)
    eager, captured = eagerly(job), capture_job(job)
    ours, apart, without = (
        in_stages(captured, job),
        in_stages(captured, job, 3),
        in_stages(captured, small_job(optimizer)),
    )
    trained = {captured.train.values[value].name for value in trained_uses(captured.train)}
    assert set(ours.averages) == set(apart.averages) == trained
    assert all(torch.equal(average, apart.averages[name]) for name, average in ours.averages.items())
    assert not without.averages
    assert (ours.losses, ours.held_out) == (without.losses, without.held_out)
    assert eager.average is not None
    expected = eager.average.state_dict()
    assert any("running_mean" in key for key in expected)
    for key, name in captured.state_dict.items():
        ours_now = ours.averages.get(name, ours.tensors[name])
        torch.testing.assert_close(ours_now, expected[key], rtol=1e-4, atol=1e-6)
    assert not torch.allclose(ours.averages["head.weight"], ours.tensors["head.weight"])


def test_the_formula_of_an_average_is_torchs_to_the_bit() -> None:
    """On the same parameters after every step: those of our own executor."""
    job = lockstep_job(capture_job(made := small_job(SGD(lr=0.3), ema=0.95)), made)
    lockstep = Lockstep(job, (0, len(job.graph.operators)), torch.device("cpu"))
    mirror = Small()
    average = AveragedModel(mirror, multi_avg_fn=get_ema_multi_avg_fn(0.95))
    for step in range(job.steps):
        lockstep.step(step)
        mirror.load_state_dict({key: lockstep.tensors()[key] for key in mirror.state_dict()})
        average.update_parameters(mirror)
    expected = average.module.state_dict()
    found = lockstep.executors[0].averages()
    assert len(found) == 6
    assert all(torch.equal(tensor, expected[name]) for name, tensor in found.items())


def test_a_group_without_a_parameter_is_refused_when_the_job_is_captured() -> None:
    groups = (NO_DECAY, Group(names=("frozen.*",), weight_decay=0.0))
    with pytest.raises(MisuseError, match=r"Group\(names=\('frozen\.\*',\).* has no trained parameter"):
        capture_job(small_job(AdamW(lr=0.01, groups=groups)))


def test_trained_tensors_load_into_the_authors_module() -> None:
    job = JOBS["gpt"]()
    captured = capture_job(job)
    tensors = by_key(captured, in_stages(captured, job))
    fresh = copy.deepcopy(job.model)
    fresh.load_state_dict(tensors, strict=True)
    assert all(torch.equal(fresh.state_dict()[key], tensor) for key, tensor in tensors.items())


@pytest.mark.parametrize("clip_norm", [0.0, 0.05])
def test_the_reference_is_gradient_descent_by_its_formulas(clip_norm: float) -> None:
    """Least squares with momentum, weight decay and a linear schedule, worked out in numpy."""
    inputs = np.linspace(-1.0, 1.0, 12, dtype=np.float64).reshape(6, 2)
    targets = np.array([1.0, -1.0, 0.5, 2.0, 0.0, 1.5]).reshape(6, 1)
    model = nn.Linear(2, 1, bias=False, dtype=torch.float64)
    job = TrainingJob(
        model=model,
        loss=functional.mse_loss,
        dataset=(inputs, targets),
        optimizer=SGD(
            lr=0.2, momentum=0.9, weight_decay=0.1, schedule=Linear(warmup=2, floor=0.5), clip_norm=clip_norm
        ),
        micro_batch_size=3,
        micro_batches=2,
        steps=5,
    )
    order = np.arange(6).reshape(2, 3)
    run = train_eagerly(
        job, prepare_samples(job.dataset), batches=lambda step, micro_batch: order[micro_batch]
    )

    weight, velocity, losses = model.weight.detach().numpy().copy(), None, []
    for factor in (0.5, 1.0, 1.0, 1.0 - 0.5 / 3, 1.0 - 1.0 / 3):
        error = inputs @ weight.T - targets
        losses.append(np.mean(error**2))
        gradient = 2.0 * error.T @ inputs / 6
        norm = np.linalg.norm(gradient)
        if clip_norm and norm > clip_norm:
            gradient *= clip_norm / (norm + 1e-6)
        gradient += 0.1 * weight
        velocity = gradient if velocity is None else 0.9 * velocity + gradient
        weight -= 0.2 * factor * velocity
    assert list(run.losses) == pytest.approx(losses, rel=1e-12)
    assert run.module.weight.detach().numpy() == pytest.approx(weight, rel=1e-12)


def test_the_authors_module_and_loss_are_not_trained_in_place() -> None:
    job = small_job(SGD(lr=0.1), loss=LearnedLoss())
    job.model.eval()
    before = copy.deepcopy(job.model.state_dict())
    run = eagerly(job)
    assert all(torch.equal(before[key], tensor) for key, tensor in job.model.state_dict().items())
    assert not job.model.training
    assert all(parameter.grad is None for parameter in job.model.parameters())
    assert isinstance(run.loss, LearnedLoss)
    assert run.loss.scale.item() != 0.5
    assert isinstance(job.loss, LearnedLoss)
    assert job.loss.scale.item() == 0.5


def test_held_out_loss_is_the_mean_over_full_micro_batches_in_evaluation_mode() -> None:
    model = nn.Sequential(nn.Linear(1, 1, bias=False), nn.Dropout(0.5))
    model[0].weight.data.fill_(1.0)
    model[1].eval()
    samples = [np.arange(7, dtype=np.float32).reshape(7, 1), np.zeros((7, 1), dtype=np.float32)]
    assert held_out_loss(model, functional.mse_loss, samples, 3) == pytest.approx((5 / 3 + 50 / 3) / 2)
    assert (model.training, model[0].training, model[1].training) == (True, True, False)


def test_a_model_that_returns_its_loss_needs_no_loss_function() -> None:
    class Returning(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 1)

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
            scores = self.layer(x)
            return {"scores": scores, "loss": (scores[:, 0] - y).pow(2).mean()}

    job = small_job(SGD(lr=0.1), model=Returning(), loss=None)
    eager = eagerly(job)
    ours = in_stages(capture_job(job), job)
    assert list(ours.losses) == pytest.approx(list(eager.losses), rel=1e-5)


def test_a_model_that_cannot_be_copied_is_misuse() -> None:
    class Holding(nn.Linear):
        def __deepcopy__(self, memo: object) -> object:
            raise TypeError("cannot copy a handle")

    job = small_job(SGD(lr=0.1), model=Holding(4, 3))
    with pytest.raises(MisuseError) as caught:
        eagerly(job)
    assert str(caught.value) == "the model cannot be copied, which --verify needs: cannot copy a handle"
