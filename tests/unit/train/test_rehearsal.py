"""What every peer would refuse, the author hears before publishing, in one line."""

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional

from swarm.errors import CaptureError
from swarm.train import rehearsal
from swarm.train.job import CapturedJob, TrainingJob, capture_job
from swarm.train.optimizer import SGD
from swarm.train.rehearsal import rehearse, require_repeatable

Change = Callable[[torch.Tensor], torch.Tensor]
SAMPLES = (torch.arange(64.0).reshape(16, 4), torch.arange(16) % 3)


class Model(nn.Module):
    """A layer, with what a test does before and after it."""

    def __init__(self, before: Change, after: Change) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.before = before
        self.after = after

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.after(self.layer(self.before(x)))


def captured(before: Change = torch.tanh, after: Change = torch.tanh) -> CapturedJob:
    job = TrainingJob(
        model=Model(before, after),
        loss=functional.cross_entropy,
        dataset=SAMPLES,
        optimizer=SGD(lr=0.1),
        micro_batch_size=16,
        micro_batches=1,
        steps=1,
    )
    return capture_job(job)


def told(job: CapturedJob, fields: tuple[torch.Tensor, ...] = SAMPLES) -> str:
    with pytest.raises(CaptureError) as found:
        rehearse(job, fields)
    assert "\n" not in str(found.value)
    return str(found.value)


def test_a_good_job_passes_and_leaves_tensors_and_generator_as_they_were():
    job = captured(lambda x: functional.dropout(x, 0.5))
    before = {name: tensor.clone() for name, tensor in job.tensors.items()}
    state = torch.get_rng_state()
    rehearse(job, SAMPLES)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(tensor, before[name]) for name, tensor in job.tensors.items())
    assert all(tensor.grad is None for tensor in job.tensors.values())


def test_types_that_only_numbers_show_are_found_before_publishing():
    text = told(captured(lambda x: x.double()))
    assert "with samples of the dataset, the operator linear in module 'layer' at test_rehearsal.py:" in text
    assert "same dtype" in text


def test_an_index_out_of_range_is_found_before_publishing():
    text = told(captured(), (SAMPLES[0], SAMPLES[1] + 5))
    assert "the operator cross_entropy_loss in module 'loss'" in text
    assert "out of bounds" in text


@pytest.mark.parametrize(
    "changes",
    [{"before": lambda x: torch.log(-1 - x)}, {"after": lambda h: torch.sqrt(h * 0.0)}],
    ids=["loss", "gradient"],
)
def test_what_is_not_finite_is_left_to_the_job_which_names_step_and_stage(changes: dict[str, Change]):
    rehearse(captured(**changes), SAMPLES)


def test_what_is_not_deterministic_is_refused_as_on_a_peer():
    def put(h: torch.Tensor) -> torch.Tensor:
        return h.put(torch.tensor([0, 1]), torch.ones(2))

    torch.use_deterministic_algorithms(False)
    assert "deterministic" in told(captured(after=put))
    assert not torch.are_deterministic_algorithms_enabled()


def test_a_model_too_large_to_run_here_is_judged_without_running(monkeypatch):
    monkeypatch.setattr(rehearsal, "MOST_OPERATIONS", 0.0)
    rehearse(captured(lambda x: torch.log(-1 - x)), SAMPLES)


def test_a_graph_larger_than_peers_take_is_refused(monkeypatch):
    monkeypatch.setattr(rehearsal, "MAX_GRAPH_BYTES", 100)
    assert "and peers take" in told(captured())


class Counting(nn.Module):
    """Gives another result each time."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return self.layer(x) * self.calls


def job_of(model: nn.Module) -> TrainingJob:
    return TrainingJob(
        model=model,
        loss=functional.cross_entropy,
        dataset=SAMPLES,
        optimizer=SGD(lr=0.1),
        micro_batch_size=8,
        micro_batches=1,
        steps=1,
    )


def test_a_model_that_counts_its_calls_is_refused():
    job = job_of(Counting())
    arrays = [field.numpy() for field in SAMPLES]
    with pytest.raises(CaptureError, match="called again: what forward counts or keeps cannot be captured"):
        require_repeatable(job, capture_job(job), arrays)


def test_a_model_that_draws_from_torch_is_repeatable_and_stays_as_it_was():
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(), nn.Linear(8, 3))
    job, before = job_of(model), {name: value.clone() for name, value in model.state_dict().items()}
    require_repeatable(job, capture_job(job), [field.numpy() for field in SAMPLES])
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert model.training
