"""A model whose tensors no manifest could list is refused as soon as it is captured, with the numbers."""

import msgspec
import pytest
import torch
from torch import nn
from torch.nn import functional

from swarm.data.blocks import MemoryBlockStore
from swarm.data.tensors import put_tensor
from swarm.errors import FailureError
from swarm.services.training import listing
from swarm.services.training.arrays import to_array
from swarm.services.training.listing import require_listable
from swarm.train.job import CapturedJob, TrainingJob, capture_job
from swarm.train.optimizer import SGD
from swarm.wire.limits import MIB


@pytest.fixture
def captured() -> CapturedJob:
    job = TrainingJob(
        model=nn.Linear(3, 2),
        loss=functional.mse_loss,
        dataset=(torch.zeros(4, 3), torch.zeros(4, 2)),
        optimizer=SGD(lr=0.1),
        micro_batch_size=2,
        micro_batches=2,
        steps=1,
    )
    return capture_job(job)


def with_tensors(captured: CapturedJob, tensors: dict[str, torch.Tensor]) -> CapturedJob:
    everything = {**captured.tensors, **tensors}
    return msgspec.structs.replace(captured, tensors=everything, state_dict={n: n for n in everything})


def test_the_list_is_as_long_as_that_of_the_tensors_blocks(captured: CapturedJob) -> None:
    sizes = {"large": (40, MIB // 4), "small": (1,), "empty": (0, 3)}
    job = with_tensors(captured, {name: torch.zeros(size) for name, size in sizes.items()})
    store = MemoryBlockStore(64 * MIB)
    kept = [put_tensor(store, name, *to_array(tensor)) for name, tensor in job.tensors.items()]
    assert [len(tensor.blob.blocks) for tensor in kept[-3:]] == [32, 1, 0]
    listed = [listing._listed(name, job) for name in job.tensors]
    assert listing._length(listed) == len(msgspec.msgpack.encode(kept))
    assert [(tensor.name, tensor.dtype, tensor.shape) for tensor in listed] == [
        (tensor.name, tensor.dtype, tensor.shape) for tensor in kept
    ]


def test_models_that_people_train_can_be_listed(captured: CapturedJob) -> None:
    """The sizes of a Llama with 7 billion parameters in float32, and as many tensors as a ResNet-152 has."""
    with torch.device("meta"):
        layer = {f"proj.{i}": torch.empty(4096, 11008) for i in range(7)}
        llama = {f"model.layers.{n}.{key}": tensor for n in range(32) for key, tensor in layer.items()}
        resnet = {f"encoder.stages.2.layers.{n}.normalization.weight": torch.empty(512) for n in range(932)}
    require_listable(with_tensors(captured, llama), averages=False)
    require_listable(with_tensors(captured, resnet), averages=True)


def test_too_many_tensors_or_blocks_are_refused(captured: CapturedJob) -> None:
    with torch.device("meta"):
        experts = {f"layers.{n // 64}.experts.{n % 64}.gate": torch.empty(64, 256) for n in range(6000)}
        giants = {f"layers.{n}": torch.empty(8192, 28672) for n in range(560)}
    with pytest.raises(FailureError) as caught:
        require_listable(with_tensors(captured, experts), averages=False)
    assert str(caught.value) == (
        "the model has 6,002 tensors in 6,002 blocks whose list takes 897.9 KiB, of at most 846.9 KiB: put "
        "tensors of one kind into one, such as those of all experts, or train a smaller model"
    )
    with pytest.raises(FailureError, match="562 tensors in 31,362 blocks whose list takes"):
        require_listable(with_tensors(captured, giants), averages=False)


def test_averages_count_where_they_are_kept(captured: CapturedJob, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = listing._length([listing._listed(name, captured) for name in captured.tensors])
    monkeypatch.setattr(listing, "MAX_ENVELOPE_BYTES", listing.ROOM + plain + 100)
    require_listable(captured, averages=False)
    with pytest.raises(FailureError, match="2 tensors in 2 blocks, and their averages, whose list takes"):
        require_listable(captured, averages=True)
