"""Whole swarms in one process: real nodes, real TLS, real capture; over memory and over loopback."""

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from swarm.compress.boundaries import Boundaries
from swarm.errors import CaptureError, FailureError, MisuseError
from swarm.ids import ValueId
from swarm.protocol.pipeline_events import Backward
from swarm.schedule.capacity import even_memory
from swarm.schedule.table import stage_table
from swarm.services.job import Job
from swarm.services.node import Node
from swarm.services.node_status import describe_node
from swarm.services.status.document import EncodingStatus
from swarm.services.status.source import Selection
from swarm.services.training.author import PreparedJob, prepare_job
from swarm.services.training.node import TrainingNode
from swarm.services.training.stage_work import Made, StageWork
from swarm.services.training.verify import Trained, Verification, lockstep_job, verify
from swarm.testing.cluster import Cluster, NetworksOf, loopback_networks, memory_networks
from swarm.testing.sizing import memory_of, workload_of
from swarm.train.device import DeviceThread
from swarm.train.job import TrainingJob
from swarm.train.lockstep import Lockstep, LockstepJob, run_lockstep
from swarm.train.optimizer import SGD, Constant
from swarm.train.reference import held_out_loss
from swarm.train.stage_pass import StagePass
from swarm.train.transforms import Noise, Normalize, RandomCrop, RandomHorizontalFlip

MakeJob = Callable[..., TrainingJob]
PATIENCE = 60.0


async def finished(cluster: Cluster, job: Job) -> None:
    await cluster.until(lambda: job.ended)
    assert (job.state, job.sentence) == ("done", "the trained weights are in the swarm")


class Run:
    """A swarm that has trained a job."""

    def __init__(self, cluster: Cluster, author: TrainingNode, peers: list[TrainingNode], job: Job) -> None:
        self.cluster, self.author, self.peers, self.job = cluster, author, peers, job


async def train(cluster: Cluster, prepared: PreparedJob, peers: int) -> Run:
    await cluster.add_bootstrap()
    memory = memory_of(prepared, peers)
    nodes = [await cluster.add_peer(memory=memory) for _ in range(peers)]
    author = await cluster.add_author()
    job = await author.author.publish(prepared, patience=PATIENCE)
    await finished(cluster, job)
    return Run(cluster, author, nodes, job)


async def verified(run: Run, prepared: PreparedJob, weights: Path) -> Verification:
    await run.author.export(run.job.id[:8], weights)
    trained = Trained(losses=run.job.losses, validations=run.job.validations, weights=weights)
    async with DeviceThread(torch.device("cpu")) as device:
        return await device.run(verify, prepared, trained, torch.device("cpu"), cancelled=lambda: False)


@pytest.mark.parametrize("peers", [1, 2, 3])
@pytest.mark.parametrize("networks", [memory_networks(), loopback_networks], ids=["memory", "loopback"])
async def test_a_swarm_trains_to_the_same_bits_as_one_stage(
    peers: int, networks: NetworksOf, tmp_path: Path, make_job: MakeJob
) -> None:
    prepared = prepare_job(make_job())
    async with Cluster(tmp_path / "swarm", networks=networks) as cluster:
        run = await train(cluster, prepared, peers)
        assert run.job.plan is not None
        assert len({stage.holder for stage in run.job.plan.stages}) == peers
        found = await verified(run, prepared, tmp_path / "weights.safetensors")
        assert found.identical
        assert len(run.job.losses) == 6


@pytest.mark.parametrize("peers", [1, 3])
async def test_validation_between_steps_has_the_bits_of_one_stage_and_leaves_training_as_it_was(
    peers: int, tmp_path: Path, make_job: MakeJob
) -> None:
    prepared = prepare_job(make_job(validate_every=2, validate_batches=3))
    plain = prepare_job(make_job())
    async with Cluster(tmp_path / "swarm", networks=memory_networks()) as cluster:
        run = await train(cluster, prepared, peers)
        found = await verified(run, prepared, tmp_path / "validated.safetensors")
        assert found.identical
        assert [validation.step for validation in run.job.validations] == [2, 4, 6]
        assert run.job.held_out == run.job.validations[-1].loss
        [status] = [job for job in run.author.status().jobs if job.id == run.job.id]
        shown = [(point.step, point.loss) for point in status.validations]
        assert shown == [(v.step, v.loss) for v in run.job.validations]
        without = await run.author.author.publish(plain, patience=PATIENCE)
        await finished(cluster, without)
        assert without.losses == run.job.losses
        assert without.validations == run.job.validations[-1:]
        assert {(t.name, t.blob) for t in without.weights} == {(t.name, t.blob) for t in run.job.weights}


def accuracy(scores: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return (scores.argmax(-1) == target).float().mean()


async def test_a_metric_is_measured_beside_the_held_out_loss_and_training_does_not_notice(
    tmp_path: Path, make_job: MakeJob
) -> None:
    job = make_job(validate_every=3, metric=accuracy)
    prepared = prepare_job(job)
    async with Cluster(tmp_path / "swarm", networks=memory_networks()) as cluster:
        run = await train(cluster, prepared, 3)
        weights = tmp_path / "weights.safetensors"
        assert (await verified(run, prepared, weights)).identical
        assert [validation.step for validation in run.job.validations] == [3, 6]
        module: nn.Module = type(job.model)()
        module.load_state_dict(load_file(weights), strict=True)
        assert prepared.held_out is not None
        tokens, target = (torch.from_numpy(field) for field in prepared.held_out)
        with torch.no_grad():
            expected = accuracy(module.eval()(tokens), target).item()
        assert run.job.validations[-1].metric == pytest.approx(expected, rel=1e-6)
        [status] = [known for known in run.author.status().jobs if known.id == run.job.id]
        assert status.validations[-1].metric == run.job.validations[-1].metric


@pytest.mark.parametrize("peers", [2, 3])
async def test_without_dropout_the_curve_is_pytorchs(peers: int, tmp_path: Path, make_job: MakeJob) -> None:
    job = make_job()
    job.model.dropout.p = 0.0  # type: ignore[union-attr]
    prepared = prepare_job(job)
    async with Cluster(tmp_path / "swarm", networks=memory_networks()) as cluster:
        run = await train(cluster, prepared, peers)
        weights = tmp_path / "weights.safetensors"
        found = await verified(run, prepared, weights)
        assert found.good, found
        module: nn.Module = type(job.model)()
        module.load_state_dict(load_file(weights), strict=True)
        assert job.held_out is not None
        assert prepared.held_out is not None
        expected = held_out_loss(module, job.loss, prepared.held_out, job.micro_batch_size)
        assert run.job.held_out == pytest.approx(expected, rel=1e-6)


async def test_a_swarm_under_autocast_has_the_bits_of_one_stage(tmp_path: Path, make_job: MakeJob) -> None:
    job = make_job(precision="bf16")
    job.model.dropout.p = 0.0  # type: ignore[union-attr]
    prepared = prepare_job(job)
    async with Cluster(tmp_path / "swarm", networks=memory_networks()) as cluster:
        run = await train(cluster, prepared, 2)
        assert run.job.manifest.precision == "bf16"
        found = await verified(run, prepared, tmp_path / "weights.safetensors")
        assert found.good, found


class Images(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convolution, self.head = nn.Conv2d(2, 4, 3), nn.Linear(4 * 6 * 6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.head(torch.tanh(self.convolution(x)).flatten(1))
        return scores


async def test_samples_are_transformed_alike_in_the_swarm_in_one_stage_and_under_pytorch(
    tmp_path: Path, make_job: MakeJob
) -> None:
    chance = np.random.default_rng(2)
    images, labels = chance.integers(0, 256, (40, 2, 8, 8), np.uint8), chance.integers(0, 3, 40)
    normalize = Normalize(mean=(120.0, 130.0), std=(70.0, 75.0))
    job = make_job(
        model=Images(),
        loss=nn.functional.cross_entropy,
        dataset=(images[:32], labels[:32]),
        held_out=(images[32:], labels[32:]),
        transforms={0: (RandomCrop(padding=2), RandomHorizontalFlip(), normalize, Noise(std=0.1))},
    )
    prepared = prepare_job(job)
    async with Cluster(tmp_path / "swarm", networks=memory_networks()) as cluster:
        run = await train(cluster, prepared, 2)
        assert run.job.manifest.held_out is not None
        assert run.job.manifest.held_out.transforms == ((normalize,), ())
        found = await verified(run, prepared, tmp_path / "weights.safetensors")
    assert found.good, found


async def test_held_out_samples_are_normalised_and_nothing_about_them_is_random(
    tmp_path: Path, make_job: MakeJob
) -> None:
    """With weights that stay as they are, every evaluation says what PyTorch says of normalised samples.

    A step has all training samples once, so that nothing but what is random makes their loss differ.
    """
    chance = np.random.default_rng(2)
    images, labels = chance.integers(0, 256, (40, 2, 8, 8), np.uint8), chance.integers(0, 3, 40)
    mean, std = (120.0, 130.0), (70.0, 75.0)
    job = make_job(
        model=Images(),
        loss=nn.functional.cross_entropy,
        metric=accuracy,
        dataset=(images[:12], labels[:12]),
        held_out=(images[32:], labels[32:]),
        transforms={0: (RandomCrop(padding=2), Normalize(mean=mean, std=std), Noise(std=1.0))},
        optimizer=SGD(lr=0.0),
        steps=4,
        validate_every=1,
    )
    prepared = prepare_job(job)
    async with Cluster(tmp_path, networks=memory_networks()) as cluster:
        found = (await train(cluster, prepared, 2)).job
    shown = (images[32:] - np.reshape(mean, (2, 1, 1))) / np.reshape(std, (2, 1, 1))
    target = torch.from_numpy(labels[32:])
    with torch.no_grad():
        scores = job.model(torch.from_numpy(shown.astype(np.float32)))
    assert [validation.step for validation in found.validations] == [1, 2, 3, 4]
    assert len({(validation.loss, validation.metric) for validation in found.validations}) == 1
    loss = nn.functional.cross_entropy(scores, target).item()
    assert found.validations[0].loss == pytest.approx(loss, rel=1e-5)
    assert found.validations[0].metric == pytest.approx(accuracy(scores, target).item())
    assert max(found.losses) - min(found.losses) > 0.01


async def test_a_swarm_short_of_memory_recomputes_to_the_same_bits(tmp_path: Path, make_job: MakeJob) -> None:
    prepared = prepare_job(make_job(micro_batch_size=16, optimizer=SGD(lr=0.1)))
    work = workload_of(prepared)
    table = stage_table(work.graph, work.optimizer, recompute=True)
    memory = even_memory(table, micro_batches=work.micro_batches, peers=3)
    assert memory < memory_of(prepared, 3)
    async with Cluster(tmp_path / "swarm", networks=memory_networks()) as cluster:
        await cluster.add_bootstrap()
        peers = [await cluster.add_peer(memory=memory) for _ in range(3)]
        author = await cluster.add_author()
        job = await author.author.publish(prepared, patience=PATIENCE)
        await finished(cluster, job)
        assert job.plan is not None
        again = [stage.recompute for stage in job.plan.stages]
        assert any(again)
        told = ["runs each forward twice" in line for line in job.plan.explanation[1 : len(again) + 1]]
        assert told == again
        run = Run(cluster, author, peers, job)
        found = await verified(run, prepared, tmp_path / "weights.safetensors")
    assert found.identical


async def test_the_average_of_weights_is_exported_from_a_swarm(tmp_path: Path, make_job: MakeJob) -> None:
    job = make_job(ema=0.75)
    prepared = prepare_job(job)
    plain, average = tmp_path / "weights.safetensors", tmp_path / "average.safetensors"
    async with Cluster(tmp_path / "swarm", networks=memory_networks()) as cluster:
        run = await train(cluster, prepared, 2)
        await run.author.export(run.job.id, average, Selection(ema=True))
        await run.author.export(run.job.id, plain)
    async with DeviceThread(torch.device("cpu")) as device:
        own_job = lockstep_job(prepared, cancelled=lambda: False)
        own = await device.run(run_lockstep, own_job, torch.device("cpu"))
    found, weights = load_file(average), load_file(plain)
    assert set(found) == set(weights) == set(prepared.captured.state_dict)
    assert own.averages
    for key, name in prepared.captured.state_dict.items():
        assert torch.equal(found[key], own.averages.get(name, own.tensors[name]))
        assert torch.equal(weights[key], own.tensors[name])
    assert own.held_out == run.job.held_out
    type(job.model)().load_state_dict(found, strict=True)


async def test_an_average_that_a_job_does_not_keep_is_not_exported(tmp_path: Path, make_job: MakeJob) -> None:
    prepared = prepare_job(make_job(steps=1))
    async with Cluster(tmp_path / "swarm", networks=memory_networks()) as cluster:
        run = await train(cluster, prepared, 1)
        with pytest.raises(MisuseError, match="keeps no average of its weights: leave out --ema, or give"):
            await run.author.export(run.job.id, tmp_path / "average", Selection(ema=True))
    assert not (tmp_path / "average").exists()


def fill_up(monkeypatch: pytest.MonkeyPatch, *places: tuple[type, str, int]) -> None:
    """Ask the allocator for more than a machine has, once for each, at so-manieth calls of methods."""
    for kind, name, place in places:
        calls, plain = itertools.count(1), getattr(kind, name)

        def full(*args: Any, calls: Iterator[int] = calls, place: int = place, plain: Any = plain) -> Any:
            if next(calls) == place:
                torch.empty(2**50, dtype=torch.uint8)
            return plain(*args)

        monkeypatch.setattr(kind, name, full)


async def test_peers_out_of_memory_do_it_again_offer_less_and_come_to_the_same_bits(
    tmp_path: Path, make_job: MakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared = prepare_job(make_job())
    fill_up(monkeypatch, (StagePass, "begin", 3), (Boundaries, "receive", 4))
    async with Cluster(tmp_path / "swarm", networks=memory_networks()) as cluster:
        run = await train(cluster, prepared, 2)
        told = [e.sentence for peer in run.peers for e in peer.story.events() if e.kind == "trouble"]
        assert sorted("forward pass" in text for text in told) == [False, True]
        assert all("1125899906842624 bytes" in text for text in told)
        assert all("it is done again, and this peer offers" in text for text in told)
        assert (await verified(run, prepared, tmp_path / "weights.safetensors")).identical


async def test_a_stage_that_has_no_memory_a_third_time_is_given_up_with_a_sentence_and_moves(
    tmp_path: Path, make_job: MakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared = prepare_job(make_job())
    fill_up(monkeypatch, *[(StagePass, "begin", 3)] * 3)
    async with Cluster(tmp_path / "swarm", networks=memory_networks()) as cluster:
        await cluster.add_bootstrap()
        peer = await cluster.add_peer(memory=memory_of(prepared, 1))
        author = await cluster.add_author()
        job = await author.author.publish(prepared, patience=PATIENCE)

        def told() -> list[str]:
            return [event.sentence for event in peer.story.events() if event.kind == "trouble"]

        await cluster.until(lambda: len(told()) == 3)
        assert "the forward pass of stage 1 failed" in told()[2]
        assert "give this peer less with --memory, or the job a smaller micro_batch_size" in told()[2]
        await cluster.until(lambda: job.state == "waiting")
        await cluster.add_peer(memory=memory_of(prepared, 1))
        await finished(cluster, job)
        assert job.plan is not None
        assert {stage.holder for stage in job.plan.stages} != {peer.identity.peer}


async def test_a_boundary_gradient_of_zeros_fails_both_contracts(
    tmp_path: Path, make_job: MakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = make_job()
    job.model.dropout.p = 0.0  # type: ignore[union-attr]
    prepared = prepare_job(job)
    backward = StageWork.backward
    spoiled: list[ValueId] = []

    def zeros(work: StageWork, asked: Backward) -> Made:
        made = backward(work, asked)
        for value, apart in list(made.tensors.items())[:1]:
            spoiled.append(value)
            payload = apart.encode().payload
            payload.cast("B")[:] = bytes(payload.nbytes)
        return made

    monkeypatch.setattr(StageWork, "backward", zeros)
    async with Cluster(tmp_path / "swarm", networks=memory_networks()) as cluster:
        run = await train(cluster, prepared, 2)
        found = await verified(run, prepared, tmp_path / "weights.safetensors")
    assert spoiled
    assert not found.identical
    assert found.difference > 1e-5
    assert not found.good


async def test_a_job_waits_for_enough_peers_and_says_what_for(tmp_path: Path, make_job: MakeJob) -> None:
    prepared = prepare_job(make_job())
    memory = memory_of(prepared, 2)
    async with Cluster(tmp_path, networks=memory_networks()) as cluster:
        await cluster.add_bootstrap()
        peer = await cluster.add_peer(memory=memory)
        author = await cluster.add_author()
        job = await author.author.publish(prepared, patience=PATIENCE)
        await cluster.until(lambda: "start more peers" in job.sentence)
        for node in (peer, author):
            waiting = node.status().waiting
            assert waiting is not None
            assert waiting.job == job.id
            assert "start more peers or raise --memory" in waiting.reason
            assert waiting.until is not None
        await cluster.add_peer(memory=memory)
        await finished(cluster, job)


async def test_a_job_without_enough_memory_fails_when_its_patience_ends(
    tmp_path: Path, make_job: MakeJob
) -> None:
    prepared = prepare_job(make_job())
    async with Cluster(tmp_path, networks=memory_networks()) as cluster:
        await cluster.add_bootstrap()
        await cluster.add_peer(memory=1000)
        author = await cluster.add_author()
        job = await author.author.publish(prepared, patience=4.0)
        await cluster.until(lambda: job.ended)
        assert job.state == "failed"
        assert job.sentence.startswith("after 4 s: ")
        assert "the largest of 1 peer offers 1000 B: raise --memory" in job.sentence


async def test_without_any_peer_publishing_gives_up_with_a_line(tmp_path: Path, make_job: MakeJob) -> None:
    prepared = prepare_job(make_job())
    async with Cluster(tmp_path, networks=memory_networks()) as cluster:
        await cluster.add_bootstrap()
        author = await cluster.add_author()
        with pytest.raises(FailureError, match="after 0 s: no peer that offers memory is in the swarm"):
            await author.author.publish(prepared, patience=0.2)


async def running(cluster: Cluster, prepared: PreparedJob, peers: int) -> Run:
    """A swarm in the middle of training."""
    await cluster.add_bootstrap()
    nodes = [await cluster.add_peer(memory=memory_of(prepared, peers)) for _ in range(peers)]
    author = await cluster.add_author()
    job = await author.author.publish(prepared, patience=PATIENCE)
    await cluster.until(lambda: job.step >= 2)
    return Run(cluster, author, nodes, job)


async def test_when_a_holder_leaves_everybody_says_who(tmp_path: Path, make_job: MakeJob) -> None:
    prepared = prepare_job(make_job(steps=100_000))
    async with Cluster(tmp_path, networks=memory_networks()) as cluster:
        run = await running(cluster, prepared, 3)
        leaver = next(node for node in run.peers if node.identity.peer != run.job.coordinator)
        name = leaver.identity.peer[:8]
        await cluster.end(leaver)
        await cluster.until(lambda: run.job.state == "waiting")
        coordinator = next(node for node in run.peers if node.identity.peer == run.job.coordinator)
        told = [event.sentence for event in coordinator.status().events]
        (lost,) = [sentence for sentence in told if "another plan" in sentence]
        assert f"peer {name} left: its program ended" in lost
        assert "and with it stage" in lost
        others: list[Node] = [node for node in (*run.peers, run.author) if node is not leaver]
        for node in others:
            assert any(f"peer {name} left" in event.sentence for event in node.status().events)
        await cluster.until(lambda: not any(node.held() for node in others))


async def test_an_author_may_leave_once_blocks_are_replicated(tmp_path: Path, make_job: MakeJob) -> None:
    prepared = prepare_job(make_job(steps=200))
    async with Cluster(tmp_path, networks=memory_networks()) as cluster:
        await cluster.add_bootstrap()
        peers = [await cluster.add_peer(memory=memory_of(prepared, 2)) for _ in range(2)]
        author = await cluster.add_author()
        job = await author.author.publish(prepared, patience=PATIENCE)
        await cluster.until(lambda: job.replicas > 0)
        await cluster.end(author)
        known = peers[0].jobs.find(job.id)
        await finished(cluster, known)
        later = await cluster.add_author()
        report = await later.export(job.id[:10], tmp_path / "weights.safetensors")
        assert report.tensors == len(load_file(tmp_path / "weights.safetensors"))


async def test_weights_outlive_a_restart_of_every_peer(tmp_path: Path, make_job: MakeJob) -> None:
    prepared = prepare_job(make_job())
    async with Cluster(tmp_path / "swarm", networks=memory_networks()) as cluster:
        run = await train(cluster, prepared, 2)
        for node in (run.author, *run.peers):
            await cluster.end(node)
        peers = [await cluster.start_again(node) for node in run.peers]
        reader = await cluster.add_author()
        await cluster.until(lambda: {node.identity.peer for node in peers} <= set(reader.links))
        report = await reader.export(run.job.id[:8], tmp_path / "weights.safetensors")
        assert report.tensors == len(prepared.captured.state_dict)
        again = reader.jobs.find(run.job.id)
        assert (again.state, again.held_out) == ("done", run.job.held_out)


async def test_cancelling_ends_a_job_everywhere(tmp_path: Path, make_job: MakeJob) -> None:
    prepared = prepare_job(make_job(steps=100_000))
    async with Cluster(tmp_path, networks=memory_networks()) as cluster:
        run = await running(cluster, prepared, 2)
        await run.author.cancel(run.job.id[:8])
        for node in run.peers:
            known = node.jobs.find(run.job.id)
            await cluster.until(lambda known=known: known.ended)  # type: ignore[misc]
            assert known.sentence == f"cancelled by peer {run.author.identity.peer[:8]}"
        await cluster.until(lambda: not any(node.held() for node in run.peers))
        with pytest.raises(FailureError, match="has ended already"):
            await run.author.cancel(run.job.id)


class Exploding(nn.Module):
    """Finite at first; a large learning rate does the rest."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 64)
        self.second = nn.Linear(64, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.second(self.first(x) ** 3)
        return y


async def test_a_loss_that_becomes_nan_names_step_and_stage(tmp_path: Path, make_job: MakeJob) -> None:
    x = torch.randn(32, 4)
    changes: dict[str, Any] = {
        "model": Exploding(),
        "loss": lambda output, target: ((output - target) ** 2).mean(),
        "dataset": (x, torch.randn(32, 1)),
        "held_out": None,
        "optimizer": SGD(lr=1e6, schedule=Constant()),
        "steps": 50,
    }
    prepared = prepare_job(make_job(**changes))
    async with Cluster(tmp_path, networks=memory_networks()) as cluster:
        await cluster.add_bootstrap()
        for _ in range(2):
            await cluster.add_peer(memory=memory_of(prepared, 2))
        author = await cluster.add_author()
        job = await author.author.publish(prepared, patience=PATIENCE)
        await cluster.until(lambda: job.ended)
        assert job.state == "failed"
        assert job.sentence.startswith(f"step {len(job.losses)}: ")
        assert "pass of stage" in job.sentence
        assert all(torch.isfinite(torch.tensor(job.losses)))


def test_samples_that_no_peer_could_train_on_are_refused_before_anything_is_published(
    make_job: MakeJob,
) -> None:
    inside = (torch.arange(96).reshape(16, 6) % 5, torch.arange(96).reshape(16, 6) % 5)
    outside = (inside[0] + 10_000, inside[1])
    with pytest.raises(CaptureError, match="with samples of the dataset, the operator embedding in module"):
        prepare_job(make_job(dataset=outside, held_out=None))
    assert prepare_job(make_job(dataset=inside, held_out=None)).held_out is None


async def test_with_the_dhts_storage_emptied_a_join_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Cluster(tmp_path, networks=memory_networks()) as cluster:
        bootstrap = await cluster.add_bootstrap()
        first = await cluster.add_peer(memory=1000)
        await cluster.until(lambda: len(bootstrap.links) == 1)
        for node in (bootstrap, first):
            storage = node.entrance.discovery._node.storage
            monkeypatch.setattr(storage, "_put", lambda *_: None)
            node.entrance.discovery.forget_records()
        with pytest.raises(FailureError, match="does not keep what is published there"):
            await cluster.add_author()
        peer = await cluster.add_peer(memory=1000)
        await cluster.until(lambda: len(peer.links) == 2)
        assert not peer.has_joined
        waiting = peer.status().waiting
        assert waiting is not None
        assert "does not keep what is published there" in waiting.reason


def has_copy(node: Node) -> bool:
    return any("a copy of the weights" in event.sentence for event in node.story.events())


async def test_anybody_who_was_there_can_say_how_a_job_ended_and_give_its_weights(
    tmp_path: Path, make_job: MakeJob
) -> None:
    prepared = prepare_job(make_job())
    async with Cluster(tmp_path / "swarm", networks=memory_networks()) as cluster:
        run = await train(cluster, prepared, 2)
        await cluster.until(lambda: any(has_copy(node) for node in run.peers))
        coordinator = next(node for node in run.peers if node.identity.peer == run.job.coordinator)
        author = run.author
        await cluster.end(coordinator)
        await cluster.end(author)
        reader = await cluster.add_author()
        found = await reader.export(run.job.id[:8], tmp_path / "weights.safetensors")
        assert found.tensors == len(prepared.captured.state_dict)


async def test_the_status_says_what_codecs_save_and_lose(tmp_path: Path, make_job: MakeJob) -> None:
    prepared = prepare_job(make_job(policy="int8", steps=400))
    async with Cluster(tmp_path / "swarm", networks=memory_networks()) as cluster:
        await cluster.add_bootstrap()
        memory = memory_of(prepared, 3)
        nodes = [await cluster.add_peer(memory=memory) for _ in range(3)]
        author = await cluster.add_author()
        job = await author.author.publish(prepared, patience=PATIENCE)

        def encodings() -> dict[tuple[int, str], EncodingStatus]:
            held = [(stage.stage, way) for node in nodes for stage in node.held() for way in stage.encodings]
            return {(stage, way.direction): way for stage, way in held}

        expected = {(0, "forward"), (1, "forward"), (1, "backward"), (2, "backward")}
        await cluster.until(lambda: encodings().keys() == expected or job.ended)
        found = encodings()
        plans = [describe_node(node).plan for node in nodes]
    assert found.keys() == expected
    for way in found.values():
        assert way.codec == "int8"
        assert 0.1 < way.sent / way.bytes < 0.4
        assert way.relative_error is not None
        assert way.cosine is not None
        assert 0 < way.relative_error < 0.03
        assert way.cosine > 0.999
    shown = [stage for plan in plans if plan is not None for stage in plan.stages if stage.encodings]
    assert {stage.codec for stage in shown} == {"int8"}


def _first_held_out(job: LockstepJob, trained: Mapping[str, torch.Tensor]) -> float:
    """The loss of the first held-out micro-batch, without codecs."""
    assert job.held_out is not None
    plain = Lockstep(replace(job, tensors=trained), (0, len(job.graph.operators)), torch.device("cpu"))
    return plain.evaluate(0, job.held_out(0))


@pytest.mark.parametrize("policy", ["int8", "bf16z", "int4", "topk:20%:8", "uniform:6", "adatopk:4"])
async def test_every_policy_trains_to_the_bits_of_the_same_codecs_in_one_process(
    policy: str, tmp_path: Path, make_job: MakeJob
) -> None:
    prepared = prepare_job(make_job(policy=policy))
    async with Cluster(tmp_path / "swarm", networks=memory_networks()) as cluster:
        run = await train(cluster, prepared, 3)
        await run.author.export(run.job.id[:8], tmp_path / "weights.safetensors")
    plan = run.job.plan
    assert plan is not None
    codecs = [stage.codec for stage in plan.stages]
    assert all(codec.codec != "fp32" for codec in codecs[:-1]) or policy.startswith("adatopk")
    assert any(codec.codec != "fp32" for codec in codecs[:-1])
    assert any("encoded as" in line for line in plan.explanation)
    bounds = [0, *(stage.last for stage in plan.stages)]
    job = lockstep_job(prepared, cancelled=lambda: False)
    async with DeviceThread(torch.device("cpu")) as device:
        same = await device.run(lambda: run_lockstep(job, torch.device("cpu"), bounds, codecs))
        plain = await device.run(lambda: run_lockstep(job, torch.device("cpu"), bounds))
        first = await device.run(lambda: _first_held_out(job, same.tensors))
    assert run.job.spot_check is not None
    assert run.job.spot_check.lossless == first
    assert run.job.spot_check.encoded != first
    assert tuple(run.job.losses) == same.losses
    assert run.job.held_out == same.held_out
    assert same.losses != plain.losses
    weights = load_file(tmp_path / "weights.safetensors")
    for key, name in prepared.captured.state_dict.items():
        assert torch.equal(weights[key], same.tensors[name])
