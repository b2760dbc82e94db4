"""A peer is never given what it cannot run, and who reads the plan, or the refusal, hears why."""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import permutations

import msgspec
import pytest

from swarm.errors import CapacityError
from swarm.graph.dag import Graph
from swarm.graph.needs import needs
from swarm.ids import JobId, PeerId
from swarm.schedule.capacity import memory_for_peers
from swarm.schedule.chain import Chain
from swarm.schedule.lacking import job_needs
from swarm.schedule.orders import fitting_order
from swarm.schedule.partition import partition
from swarm.schedule.plan import make_plan
from swarm.schedule.table import StageTable, stage_table
from swarm.schedule.workload import PeerOffer, Workload
from swarm.wire.records.manifest import Optimizer
from swarm.wire.records.plan import Plan

RandomGraph = Callable[[int, int], Graph]
JOB = JobId("j" * 52)
KINDS = ("aten.linear.default", "aten.gelu.default", "aten.tanh.default", "aten.neg.default", "float32")


def workload(graph: Graph, optimizer: Optimizer) -> Workload:
    evaluation = msgspec.structs.replace(graph, mode="evaluate")
    return Workload(graph=graph, evaluation=evaluation, optimizer=optimizer, micro_batches=4)


def offer(name: str, memory: int, *lacks: str) -> PeerOffer:
    return PeerOffer(peer=PeerId(name * 32), memory=memory, flops=1e9, lacks=frozenset(lacks))


def activations(sketch, *functions: str) -> Graph:
    """A product before each of these functions, in one module each."""
    h = sketch.leaf("input", 8, 64)
    for index, function in enumerate(functions):
        weight = sketch.leaf("parameter", 64, 64)
        h = sketch.op("linear.default", [h, weight], 8, 64, path=f"layers.{index}")
        h = sketch.op(f"{function}.default", [h], 8, 64, path=f"layers.{index}")
    sketch.op("sum.default", [h], path="loss")
    return sketch.graph()


def given(plan: Plan, work: Workload, peer: str) -> set[str]:
    """All that the stages of a peer need, in training and in evaluation."""
    train, evaluation = needs(work.graph), needs(work.evaluation)
    theirs = [stage for stage in plan.stages if stage.holder == peer * 32]
    indices = [(train, range(stage.first, stage.last)) for stage in theirs]
    indices += [(evaluation, stage.evaluation) for stage in theirs]
    return {name for found, stage in indices for index in stage for name in found[index]}


@pytest.mark.parametrize("lacking", ["gelu", "tanh"])
def test_a_peer_gets_only_stages_without_the_operator_that_it_lacks(sketch, adamw: Optimizer, lacking: str):
    work = workload(activations(sketch, "gelu", "gelu", "tanh", "tanh"), adamw)
    each = int(memory_for_peers(work, 2) * 1.2)
    plan = make_plan(JOB, work, [offer("a", each), offer("b", each, f"aten.{lacking}.default")])
    assert len(plan.stages) == 2
    assert {"aten.gelu.default", "aten.tanh.default"} - given(plan, work, "b") == {f"aten.{lacking}.default"}
    assert plan.explanation[-1] == f"peer bbbbbbbb cannot run aten.{lacking}.default"
    assert not any("cannot run" in line for line in plan.explanation[:-1])


def test_what_a_job_does_not_need_may_be_lacking(sketch, adamw: Optimizer):
    work = workload(activations(sketch, "gelu", "tanh"), adamw)
    each = memory_for_peers(work, 2)
    limited = [offer("a", each, "aten.cos.default", "float64"), offer("b", each, "aten.sin.default")]
    whole = [offer("a", each), offer("b", each)]
    assert make_plan(JOB, work, limited) == make_plan(JOB, work, whole)


def test_a_peer_that_lacks_a_type_gets_nothing_that_touches_it(sketch, adamw: Optimizer):
    h = sketch.leaf("input", 8, 64)
    for dtype in ("float32", "float32", "float64", "float64"):
        h = sketch.op("_to_copy.default", [h], 8, 64, dtype=dtype)
        weight = sketch.leaf("parameter", 64, 64, dtype=dtype)
        h = sketch.op("linear.default", [h, weight], 8, 64, dtype=dtype)
    sketch.op("sum.default", [h])
    work = workload(sketch.graph(), adamw)
    each = memory_for_peers(work, 1)
    plan = make_plan(JOB, work, [offer("a", each), offer("b", each, "float64")])
    assert {stage.holder[0] for stage in plan.stages} == {"a", "b"}
    assert "float64" not in given(plan, work, "b")


def test_what_nobody_can_run_is_refused_with_the_operator_and_the_peers(sketch, adamw: Optimizer):
    work = workload(activations(sketch, "gelu", "tanh"), adamw)
    each = memory_for_peers(work, 1)
    with pytest.raises(CapacityError) as caught:
        make_plan(JOB, work, [offer("a", each, "aten.gelu.default"), offer("b", each, *KINDS[:3])])
    assert str(caught.value) == (
        "nobody can run aten.gelu.default: update torch, or start another peer; "
        "peer aaaaaaaa cannot run aten.gelu.default; "
        "peer bbbbbbbb cannot run aten.gelu.default, aten.linear.default, aten.tanh.default"
    )


def test_peers_that_cannot_share_the_operators_out_are_told_of(sketch, adamw: Optimizer):
    work = workload(activations(sketch, "gelu", "tanh", "gelu"), adamw)
    each = memory_for_peers(work, 1)
    with pytest.raises(CapacityError) as caught:
        make_plan(JOB, work, [offer("a", each, "aten.gelu.default"), offer("b", each, "aten.tanh.default")])
    assert str(caught.value) == (
        "the job does not fit where not every peer can run everything: update torch, or start more peers; "
        "peer aaaaaaaa cannot run aten.gelu.default; peer bbbbbbbb cannot run aten.tanh.default"
    )


def evaluated_otherwise(train: Graph, target: str) -> Graph:
    """The evaluation graph of ``train``, where the last tanh is another function."""
    index = max(i for i, operator in enumerate(train.operators) if operator.target == "aten.tanh.default")
    operators = list(train.operators)
    operators[index] = msgspec.structs.replace(operators[index], target=target)
    return msgspec.structs.replace(train, mode="evaluate", operators=tuple(operators))


def test_what_evaluation_alone_needs_counts_where_it_is_evaluated(sketch, adamw: Optimizer):
    train = activations(sketch, "gelu", "gelu", "tanh", "tanh")
    work = replace(workload(train, adamw), evaluation=evaluated_otherwise(train, "aten.relu.default"))
    each = memory_for_peers(work, 1)
    plan = make_plan(JOB, work, [offer("a", each), offer("b", 2 * each, "aten.relu.default")])
    assert [stage.holder[0] for stage in plan.stages] == ["b", "a"]
    assert "aten.relu.default" not in given(plan, work, "b")
    assert plan.explanation[-1] == "peer bbbbbbbb cannot run aten.relu.default"
    with pytest.raises(CapacityError, match=r"^nobody can run aten.relu.default.*; peer bbbbbbbb cannot run"):
        make_plan(JOB, work, [offer("b", each, "aten.relu.default")])


def test_who_would_evaluate_what_it_cannot_run_because_of_a_shared_parameter_is_left_out(
    sketch, adamw: Optimizer
):
    """Evaluation uses it as soon as a stage has it, and that is where training uses it first."""
    x, weight, other = (sketch.leaf(kind, 64, 64) for kind in ("input", "parameter", "parameter"))
    h = sketch.op("linear.default", [sketch.op("linear.default", [x, weight], 64, 64), other], 64, 64)
    h = sketch.op("linear.default", [sketch.op("gelu.default", [h], 64, 64), weight], 64, 64)
    sketch.op("sum.default", [sketch.op("tanh.default", [h], 64, 64)])
    train = sketch.graph()
    early = evaluated_otherwise(train, "aten.relu.default")
    work = replace(workload(train, adamw), evaluation=early)
    each = memory_for_peers(work, 1)
    two = [offer("a", 2 * each, "aten.gelu.default"), offer("b", 2 * each, "aten.relu.default")]
    plan = make_plan(JOB, work, [*two, replace(offer("c", each), flops=1e6)])
    assert {stage.holder[0] for stage in plan.stages} <= {"a", "c"}
    assert "peer bbbbbbbb cannot run aten.relu.default" in plan.explanation
    with pytest.raises(CapacityError, match=r"^nobody can run aten.gelu.default.*; peer bbbbbbbb cannot run"):
        make_plan(JOB, work, two)


def test_of_many_limited_peers_some_are_named(sketch, adamw: Optimizer):
    work = workload(activations(sketch, "gelu", "tanh"), adamw)
    each = memory_for_peers(work, 1)
    limited = [offer(name, each, "aten.gelu.default") for name in "abcdef"]
    lines = make_plan(JOB, work, [*limited, offer("z", each)]).explanation
    assert lines[-1] == "2 more peers cannot run everything"
    assert sum("cannot run aten.gelu.default" in line for line in lines) == 4


def fits(table: StageTable, order: Sequence[PeerOffer]) -> bool:
    chain = Chain(
        memory=tuple(o.memory for o in order), flops=(1.0,) * len(order), lacks=tuple(o.lacks for o in order)
    )
    return partition(table, chain, micro_batches=3) is not None


@pytest.mark.parametrize("seed", range(40))
def test_an_order_is_found_wherever_there_is_one_and_its_stages_can_be_run(
    random_graph: RandomGraph, adamw: Optimizer, seed: int
):
    rng = random.Random(seed)
    work = workload(random_graph(seed, 10), adamw)
    table = stage_table(work.graph, adamw, needed=job_needs(work))
    each = memory_for_peers(work, 2)
    offers = [offer(name, each, *rng.sample(KINDS[:4], rng.randrange(3))) for name in "abc"]
    possible = any(fits(table, order) for order in permutations(offers))
    found = fitting_order(table, offers, micro_batches=3)
    assert (found is not None) == possible
    if found is None:
        return
    assert fits(table, found)
    plan = make_plan(JOB, replace(work, micro_batches=3), offers)
    for peer in offers:
        assert peer.lacks.isdisjoint(given(plan, work, peer.peer[0]))
