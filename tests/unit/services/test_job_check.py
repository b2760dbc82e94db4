"""Manifest, graphs, samples, optimizer and plan against each other: what does not fit is said in one line."""

from itertools import pairwise
from typing import Any

import pytest
from msgspec.structs import replace

from swarm.errors import RemoteProtocolError
from swarm.graph.dag import Graph, Operator, Ref, TensorSpec, Value
from swarm.services.job_check import (
    average_of,
    check_graphs,
    check_manifest,
    check_memory,
    check_plan,
    check_state,
    check_weights,
    cut_as_planned,
)
from swarm.wire.limits import MAX_BLOCK_BYTES, MAX_GRAPH_BYTES
from swarm.wire.records.blobs import Blob, TensorBlob
from swarm.wire.records.manifest import Dataset, Field, Manifest, Optimizer, Schedule
from swarm.wire.records.plan import Plan, StagePlan
from swarm.wire.records.state import JobSnapshot, StateTensor
from swarm.wire.records.transforms import RandomCrop

NAME = "q" * 52
BLOB = Blob(size=4, blocks=(NAME,))
WEIGHT = TensorBlob(name="w", dtype="float32", shape=(6,), blob=Blob(size=24, blocks=(NAME,)))
SCHEDULE = Schedule(kind="constant", warmup=0, floor=0.0)


def dataset(samples: int = 12, dtype: Any = "float32", shape: tuple[int, ...] = (6,)) -> Dataset:
    item = {"float32": 4, "int64": 8}[dtype] * shape[0]
    field = Field(dtype, shape, samples, Blob(size=item * samples, blocks=(NAME,)))
    return Dataset(samples, (field,))


def optimizer(kind: Any = "sgd", **changes: Any) -> Optimizer:
    return Optimizer(kind=kind, lr=0.1, schedule=SCHEDULE, **changes)


def manifest(**changes: Any) -> Manifest:
    fields: dict[str, Any] = {
        "format": 1,
        "swarm": "s" * 32,
        "name": "gpt",
        "created": 1.0,
        "graph": BLOB,
        "evaluation": BLOB,
        "tensors": (WEIGHT,),
        "state": (("w", "w"),),
        "dataset": dataset(),
        "held_out": dataset(4),
        "optimizer": optimizer(),
        "micro_batch_size": 4,
        "micro_batches": 3,
        "steps": 10,
        "seed": 0,
        "tokens_per_sample": 1,
        "council": ("c" * 32,),
        "patience": 0.0,
    }
    return Manifest(**(fields | changes))


def spec(*shape: int, dtype: Any = "float32") -> TensorSpec:
    return TensorSpec(dtype, shape, tuple(1 for _ in shape))


def operator(target: str, reads: list[int], makes: int) -> Operator:
    return Operator(target, tuple(Ref(value) for value in reads), (), (makes,), "", "", random=False)


def graph(mode: Any = "train", **changes: Any) -> Graph:
    values = (
        Value("input", "input.0", TensorSpec("float32", (4, 6), (6, 1)), differentiable=False),
        Value("parameter", "w", spec(6), differentiable=True),
        Value("output", "mul", TensorSpec("float32", (4, 6), (6, 1)), differentiable=True),
        Value("output", "loss", spec(), differentiable=True),
    )
    operators = (operator("aten.mul.Tensor", [0, 1], 2), operator("aten.sum.default", [2], 3))
    made = Graph(1, mode, values, operators, 3, (), ())
    return replace(made, **changes)


def plan(*bounds: int, memory: int = 10_000, depths: tuple[int, ...] = (), **changes: Any) -> Plan:
    stages = tuple(
        StagePlan(
            first=first,
            last=last,
            evaluation=(),
            holder="h" * 32,
            incarnation=1,
            depth=depths[index] if depths else len(bounds) - 1 - index,
            memory=memory,
            seconds=0.0,
        )
        for index, (first, last) in enumerate(pairwise(bounds))
    )
    fields: dict[str, Any] = {
        "format": 1,
        "job": NAME,
        "generation": 1,
        "step": 0,
        "stages": stages,
        "explanation": (),
    }
    return Plan(**(fields | changes))


def test_a_job_whose_parts_fit_passes() -> None:
    check_manifest(manifest())
    check_manifest(manifest(held_out=None, optimizer=optimizer("adamw")))
    check_manifest(manifest(optimizer=optimizer(momentum=0.9, nesterov=True)))
    check_graphs(manifest(), graph(), graph("evaluate"))
    check_plan(plan(0, 1, 2), manifest())
    assert len(cut_as_planned(plan(0, 1, 2), graph())) == 2
    check_memory(plan(0, 1, 2), 1, graph(), optimizer())


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"optimizer": optimizer("adamw", betas=(1.5, 0.9))}, "betas must be below 1"),
        ({"optimizer": optimizer(nesterov=True)}, "nesterov needs a momentum"),
        ({"optimizer": optimizer(nesterov=True, momentum=0.9, dampening=0.1)}, "and no dampening"),
        ({"dataset": dataset(11)}, "one step needs 12 samples of 11"),
        ({"micro_batch_size": 2**20, "micro_batches": 4096}, "one step needs 4294967296 samples of 12"),
        ({"held_out": dataset(3)}, "do not fill a micro-batch"),
        ({"held_out": None, "validate_every": 2}, "it validates, and has no held-out samples"),
        ({"held_out": dataset(4, shape=(5,))}, "of another kind"),
        ({"held_out": dataset(4, dtype="int64")}, "of another kind"),
        ({"dataset": replace(dataset(), samples=24)}, "other bytes than its samples call for"),
        ({"tensors": (WEIGHT, WEIGHT)}, "two tensors of one name"),
        ({"tensors": (replace(WEIGHT, shape=(7,)),)}, "not what its shape calls for"),
        ({"state": (("w", "w"), ("w", "w"))}, "a key twice"),
        ({"state": (("a", "b"),)}, "its state_dict has b, which is no tensor"),
        (
            {"tensors": (replace(WEIGHT, name="(ema).w"),), "optimizer": optimizer(ema=0.9), "state": ()},
            "leaves none for an average",
        ),
        (
            {"tensors": (replace(WEIGHT, name="w" * 996),), "optimizer": optimizer(ema=0.9), "state": ()},
            "leaves none for an average",
        ),
        ({"dataset": replace(dataset(), transforms=((), ()))}, "transforms are not those of its fields"),
        ({"dataset": replace(dataset(), transforms=((RandomCrop(padding=1),),))}, "it needs items of"),
        ({"frozen": ("v",)}, "v is frozen, and not in its state_dict"),
        ({"graph": Blob(size=4, blocks=())}, "4 bytes cannot be in 0 blocks"),
        ({"graph": Blob(size=1, blocks=(NAME, NAME))}, "1 bytes cannot be in 2 blocks"),
        ({"evaluation": Blob(size=MAX_BLOCK_BYTES + 1, blocks=(NAME,))}, "cannot be in 1 blocks"),
        ({"graph": Blob(size=MAX_GRAPH_BYTES + 1, blocks=(NAME,) * 64)}, "is over the limit"),
    ],
)
def test_a_manifest_that_does_not_fit_together(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(RemoteProtocolError, match=complaint):
        check_manifest(manifest(**changes))


@pytest.mark.parametrize(
    ("weights", "complaint"),
    [
        ((), "it lacks w"),
        ((WEIGHT, WEIGHT), "two tensors of one name"),
        ((WEIGHT, replace(WEIGHT, name="v")), "v is not as it was"),
        ((replace(WEIGHT, shape=(2, 3)),), "w is not as it was"),
        ((replace(WEIGHT, dtype="int32"),), "w is not as it was"),
        ((replace(WEIGHT, blob=Blob(size=24, blocks=(NAME, NAME))),), "w is not as it was"),
    ],
)
def test_weights_that_are_not_the_jobs(weights: tuple[TensorBlob, ...], complaint: str) -> None:
    check_weights((replace(WEIGHT, blob=Blob(size=24, blocks=("z" * 52,))),), manifest())
    with pytest.raises(RemoteProtocolError, match=complaint):
        check_weights(weights, manifest())


def test_weights_have_averages_where_the_job_keeps_them_and_only_there() -> None:
    average = replace(WEIGHT, name="(ema).w")
    assert average_of(WEIGHT) == average
    keeping = manifest(optimizer=optimizer(ema=0.9))
    check_weights((WEIGHT, average), keeping)
    for weights, job, complaint in (
        ((WEIGHT,), keeping, "it lacks the averages"),
        ((WEIGHT, replace(average, shape=(2, 3))), keeping, "w is not as it was"),
        ((WEIGHT, average), manifest(), "w is not as it was"),
    ):
        with pytest.raises(RemoteProtocolError, match=complaint):
            check_weights(weights, job)


VALUES = graph().values


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"mode": "evaluate"}, "for another mode"),
        ({"loss": 1}, "no operator of its train graph makes the loss"),
        ({"values": (replace(VALUES[0], spec=spec(4, 5)), *VALUES[1:])}, "its samples are"),
        ({"values": (replace(VALUES[0], spec=spec(4, 6, dtype="int64")), *VALUES[1:])}, "its samples are"),
        ({"values": (VALUES[0], *VALUES)}, "its samples are"),
        ({"values": (VALUES[0], replace(VALUES[1], name="v"), *VALUES[2:])}, "no tensor v"),
        ({"values": (VALUES[0], replace(VALUES[1], spec=spec(7)), *VALUES[2:])}, "no tensor w"),
    ],
)
def test_graphs_that_do_not_fit_the_manifest(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(RemoteProtocolError, match=complaint):
        check_graphs(manifest(), graph(**changes), graph("evaluate"))


def test_what_is_trained_is_not_frozen() -> None:
    with pytest.raises(RemoteProtocolError, match="w is frozen, and training changes it"):
        check_graphs(manifest(frozen=("w",)), graph(), graph("evaluate"))
    still = tuple(replace(value, differentiable=False) for value in VALUES)
    check_graphs(manifest(frozen=("w",)), graph(values=still), graph("evaluate"))


@pytest.mark.parametrize(
    ("made", "complaint"),
    [
        (plan(0, 2, step=10), "begins at step 10 of 10"),
        (plan(0, 2, step=2**40 - 2), "begins at step"),
        (plan(1, 2), "stage 1 does not follow"),
        (plan(0, 1, 1), "stage 2 does not follow"),
        (plan(0, 2, 1), "stage 2 does not follow"),
        (plan(0, 1, 2, depths=(1, 2)), "stage 2 holds more micro-batches"),
        (plan(0, 2, depths=(2**40,)), "stage 1 holds more micro-batches"),
    ],
)
def test_a_plan_that_does_not_fit_the_manifest(made: Plan, complaint: str) -> None:
    with pytest.raises(RemoteProtocolError, match=complaint):
        check_plan(made, manifest())


def test_a_plan_that_does_not_cover_the_graph() -> None:
    for bounds in ((0, 1), (0, 3)):
        with pytest.raises(RemoteProtocolError, match="does not fit the job's graph"):
            cut_as_planned(plan(*bounds), graph())


def test_a_plan_that_counts_less_memory_than_its_stage_needs() -> None:
    with pytest.raises(RemoteProtocolError, match="it counts 10 B for a stage that needs"):
        check_memory(plan(0, 2, memory=10), 0, graph(), optimizer())


COUNT = TensorBlob(name="w", dtype="float32", shape=(), blob=Blob(size=4, blocks=(NAME,)))
STATE = JobSnapshot(
    format=1,
    step=3,
    tensors=(StateTensor("value", WEIGHT), StateTensor("exp_avg", WEIGHT), StateTensor("step", COUNT)),
)


def test_a_state_of_the_job_s_own_tensors_fits() -> None:
    check_state(STATE, 3, manifest())


@pytest.mark.parametrize(
    ("tensors", "sentence"),
    [
        ((StateTensor("value", replace(WEIGHT, name="v")),), "v is not as it was"),
        ((StateTensor("value", replace(WEIGHT, shape=(3, 2))),), "w is not as it was"),
        ((StateTensor("exp_avg", COUNT),), "w is not as it was"),
        ((StateTensor("step", WEIGHT),), "w is not as it was"),
        ((StateTensor("step", replace(COUNT, name="v")),), "v is not as it was"),
        ((StateTensor("value", replace(WEIGHT, shape=(7,))),), "not what its shape calls for"),
        ((StateTensor("value", WEIGHT), StateTensor("value", WEIGHT)), "it has a tensor twice"),
    ],
)
def test_a_state_that_is_not_of_the_job_is_refused(tensors: tuple[StateTensor, ...], sentence: str) -> None:
    with pytest.raises(RemoteProtocolError, match=sentence):
        check_state(replace(STATE, tensors=tensors), 3, manifest())


def test_a_state_of_another_step_is_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="it is of step 3, and not 4"):
        check_state(STATE, 4, manifest())
