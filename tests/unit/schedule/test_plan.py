import random
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import msgspec
import pytest

from swarm.errors import CapacityError
from swarm.graph.cut import cut
from swarm.graph.dag import Graph
from swarm.graph.evaluation import evaluation_stages
from swarm.ids import JobId, PeerId
from swarm.schedule.capacity import even_memory, memory_for_peers
from swarm.schedule.cost import graph_costs
from swarm.schedule.memory import MemoryModel
from swarm.schedule.network import NetworkModel
from swarm.schedule.plan import MAX_PEERS, make_plan
from swarm.schedule.quality import admitted, ladder
from swarm.schedule.table import stage_table
from swarm.schedule.workload import PeerOffer, Workload
from swarm.wire.codecs import CodecSpec, parse_policy
from swarm.wire.records.manifest import Optimizer
from swarm.wire.records.plan import Plan

RandomGraph = Callable[[int, int], Graph]
JOB = JobId("j" * 52)


def workload(graph: Graph, optimizer: Optimizer, micro_batches: int = 4) -> Workload:
    evaluation = msgspec.structs.replace(graph, mode="evaluate")
    return Workload(graph=graph, evaluation=evaluation, optimizer=optimizer, micro_batches=micro_batches)


def offer(name: str, memory: int, flops: float = 1e9) -> PeerOffer:
    return PeerOffer(peer=PeerId((name * 32)[:32]), memory=memory, flops=flops)


def layers(sketch, count: int) -> Graph:
    h = sketch.leaf("input", 8, 64)
    for layer in range(count):
        weight = sketch.leaf("parameter", 64, 64)
        h = sketch.op("linear.default", [h, weight], 8, 64, path=f"layers.{layer}")
    sketch.op("sum.default", [h], path="loss")
    return sketch.graph()


@pytest.mark.parametrize("seed", range(8))
def test_a_plan_covers_both_graphs_within_what_is_offered(
    random_graph: RandomGraph, adamw: Optimizer, seed: int
):
    work = workload(random_graph(seed, 16), adamw)
    each = memory_for_peers(work, 3)
    plan = make_plan(JOB, work, [offer(name, each) for name in "abc"], generation=3, step=7)
    assert (plan.job, plan.generation, plan.step) == (JOB, 3, 7)
    bounds = [0, *(stage.last for stage in plan.stages)]
    assert [stage.first for stage in plan.stages] == bounds[:-1]
    stages = cut(work.graph, bounds)
    expected = evaluation_stages(work.graph, stages, work.evaluation)
    assert [stage.evaluation for stage in plan.stages] == [stage.operators for stage in expected]
    assert len({stage.holder for stage in plan.stages}) == len(plan.stages)
    assert [stage.depth for stage in plan.stages] == [
        min(len(plan.stages) - k, 4) for k in range(len(plan.stages))
    ]
    assert max(stage.memory for stage in plan.stages) <= each
    assert all(stage.incarnation == 0 for stage in plan.stages)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(plan), type=Plan) == plan


def test_the_same_offers_in_any_order_make_the_same_plan(random_graph: RandomGraph, adamw: Optimizer):
    work = workload(random_graph(2, 20), adamw)
    each = memory_for_peers(work, 4)
    offers = [offer(name, each + 1000 * (index % 2), 1e9) for index, name in enumerate("abcdef")]
    plans = set()
    for seed in range(5):
        shuffled = offers[:]
        random.Random(seed).shuffle(shuffled)
        plans.add(msgspec.msgpack.encode(make_plan(JOB, work, shuffled)))
    assert len(plans) == 1


def test_the_explanation_names_peers_operators_memory_compute_and_traffic(sketch, sgd: Optimizer):
    work = workload(layers(sketch, 4), sgd)
    plan = make_plan(JOB, work, [offer("a", 10**6), offer("b", 10**6)])
    # A layer: 2 * 8 * 64 * 64 = 65,536 operations forward, twice that backward but for the first layer.
    # Two layers have weights and gradients of 16 KiB each, and in a backward new gradients of as much again.
    # A micro-batch in flight holds 6 KiB, of which there are two at the first stage, and 2 KiB travel.
    assert plan.explanation == (
        "2 stages on 2 of 2 peers; a micro-batch takes 394 us at the slowest, stage 2",
        (
            "stage 1 of 2: 2 operators layers.0 - layers.1 on peer bbbbbbbb, 110.0 KiB of 976.6 KiB, "
            "45% of the compute; receives 2.0 KiB and sends 2.0 KiB per micro-batch"
        ),
        (
            "stage 2 of 2: 3 operators layers.2 - loss on peer aaaaaaaa, 102.0 KiB of 976.6 KiB, "
            "55% of the compute; receives 2.0 KiB and sends 2.0 KiB per micro-batch"
        ),
    )
    assert [stage.memory for stage in plan.stages] == [110 * 1024, 102 * 1024]
    assert plan.stages[1].seconds == pytest.approx((2 * 3 * 65_536 + 2 * 512) / 1e9)


def test_peers_that_would_not_help_are_named(sketch, sgd: Optimizer):
    work = workload(layers(sketch, 4), sgd)
    plan = make_plan(JOB, work, [offer("a", 10**6), offer("b", 10**6, 1.0)])
    assert [stage.holder[0] for stage in plan.stages] == ["a"]
    assert plan.explanation[0].startswith("1 stage on 1 of 2 peers")
    assert plan.explanation[-1] == "not needed: bbbbbbbb; with them the slowest part would be no faster"


def test_one_peer_alone_holds_everything(sketch, sgd: Optimizer):
    plan = make_plan(JOB, workload(layers(sketch, 4), sgd), [offer("a", 10**6)])
    assert [(stage.first, stage.last, stage.depth) for stage in plan.stages] == [(0, 5, 1)]
    assert "receives 0 B and sends 0 B" in plan.explanation[1]


def test_memory_goes_to_the_early_stages_which_hold_more_micro_batches(sketch, sgd: Optimizer):
    """Activations dominate, so the peer with little memory can only be the last of the chain."""
    h = sketch.leaf("input", 4096, 16)
    for layer in range(8):
        h = sketch.op(
            "linear.default", [h, sketch.leaf("parameter", 16, 16)], 4096, 16, path=f"layers.{layer}"
        )
    sketch.op("sum.default", [h])
    work = workload(sketch.graph(), sgd)
    each = memory_for_peers(work, 3)
    offers = [offer("a", 7 * each // 10), offer("b", 3 * each), offer("c", 3 * each)]
    plan = make_plan(JOB, work, offers)
    assert [stage.holder[0] for stage in plan.stages][-1] == "a"


def wide(sketch) -> Graph:
    """Layers whose activations are most of what they need."""
    h = sketch.leaf("input", 4096, 16)
    for layer in range(8):
        h = sketch.op(
            "linear.default", [h, sketch.leaf("parameter", 16, 16)], 4096, 16, path=f"layers.{layer}"
        )
        h = sketch.op("gelu.default", [h], 4096, 16, path=f"layers.{layer}")
    sketch.op("sum.default", [h])
    return sketch.graph()


def test_stages_recompute_only_where_the_job_does_not_fit_otherwise(sketch, sgd: Optimizer):
    work = workload(wide(sketch), sgd)
    plain, least = memory_for_peers(work, 3), recomputing_memory(work, 3)
    assert least < 0.8 * plain
    with_all = make_plan(JOB, work, [offer(name, plain) for name in "abc"])
    assert not any(stage.recompute for stage in with_all.stages)
    assert not any("twice" in line for line in with_all.explanation)
    for memory in (plain - 1, least):
        plan = make_plan(JOB, work, [offer(name, memory) for name in "abc"])
        assert any(stage.recompute for stage in plan.stages)
        assert not plan.stages[-1].recompute  # it has one micro-batch in flight: nothing would be saved
        assert max(stage.memory for stage in plan.stages) <= memory
        model = MemoryModel(work.graph, costs := graph_costs(work.graph), sgd)
        for stage, line in zip(plan.stages, plan.explanation[1:], strict=False):
            plain_bytes = model.stage_bytes(stage.first, stage.last, stage.depth)
            assert stage.recompute == (plain_bytes > memory)
            assert stage.recompute == ("; runs each forward twice, since without that it needs" in line)
            assert stage.memory == model.stage_bytes(
                stage.first, stage.last, stage.depth, recompute=stage.recompute
            )
            once = costs.flops[stage.last] - costs.flops[stage.first]
            again = stage.recompute * (costs.forward[stage.last] - costs.forward[stage.first])
            assert stage.seconds == pytest.approx((once + again) / 1e9)
    with pytest.raises(CapacityError):
        make_plan(JOB, work, [offer(name, least - 1) for name in "abc"])


def recomputing_memory(work: Workload, peers: int) -> int:
    table = stage_table(work.graph, work.optimizer, recompute=True)
    return even_memory(table, micro_batches=work.micro_batches, peers=peers)


def test_a_stage_recomputes_where_its_peer_is_short_and_no_other_does(sketch, sgd: Optimizer):
    work = workload(wide(sketch), sgd)
    plain = memory_for_peers(work, 2)
    plan = make_plan(JOB, work, [offer("a", plain - 1), offer("b", plain - 1)])
    assert [stage.recompute for stage in plan.stages] == [True, False]


def test_every_order_is_tried_before_it_is_said_that_the_peers_cannot_hold_the_job(sketch, sgd: Optimizer):
    """A large middle layer: only with the roomiest peer in the middle does the model fit."""
    h = sketch.leaf("input", 8, 64, trained=True)
    for layer, width in enumerate([96, 400, 96, 64]):
        h = sketch.op(
            "linear.default", [h, sketch.leaf("parameter", width, 64)], 8, width, path=f"layers.{layer}"
        )
        h = sketch.op(
            "linear.default", [h, sketch.leaf("parameter", 64, width)], 8, 64, path=f"layers.{layer}"
        )
    sketch.op("sum.default", [h])
    work = workload(sketch.graph(), sgd, micro_batches=1)
    plan = make_plan(JOB, work, [offer("c", 255_000), offer("b", 640_000), offer("a", 160_000)])
    assert [stage.holder[0] for stage in plan.stages] == ["a", "b", "c"]


def test_too_little_memory_is_one_line(sketch, adamw: Optimizer):
    with pytest.raises(CapacityError, match=r"^the job needs .* start more peers or raise --memory$"):
        make_plan(JOB, workload(layers(sketch, 20), adamw), [offer("a", 300_000), offer("b", 200_000)])
    with pytest.raises(CapacityError, match="no peer offers memory"):
        make_plan(JOB, workload(layers(sketch, 20), adamw), [offer("a", 0)])


@pytest.mark.parametrize("claim", [float("nan"), float("inf"), 0.0, -1.0])
def test_a_speed_that_is_no_number_counts_as_the_lowest(sketch, sgd: Optimizer, claim: float):
    work = workload(layers(sketch, 12), sgd)
    honest = [offer("a", 10**6, 1e9), offer("b", 10**6, 2e9)]
    odd = make_plan(JOB, work, [*honest, offer("c", 10**6, claim)])
    same = make_plan(JOB, work, [*honest, offer("c", 10**6, 1e9)])
    assert odd == same


def test_of_several_offers_of_one_peer_the_last_counts(sketch, sgd: Optimizer):
    work = workload(layers(sketch, 4), sgd)
    plan = make_plan(JOB, work, [offer("a", 10), offer("a", 10**6)])
    assert len(plan.stages) == 1


def test_slow_pairs_are_avoided_where_rates_are_known(sketch, sgd: Optimizer):
    work = workload(layers(sketch, 12), sgd)
    peers = [offer(name, 10**6, 1e6) for name in "abc"]
    names = [peer.peer for peer in peers]
    rates = {(x, y): 1e9 for x in names for y in names}
    slow = {(names[0], names[1]): 1.0, (names[1], names[0]): 1.0}
    plan = make_plan(JOB, work, peers, network=NetworkModel(rates=rates | slow))
    held = [stage.holder for stage in plan.stages]
    assert len(held) >= 2
    assert all({x, y} != {names[0], names[1]} for x, y in pairwise(held))


def test_a_deadline_compresses_nothing_where_no_rate_is_known_or_all_rates_are_high(sketch, sgd: Optimizer):
    work = replace(workload(layers(sketch, 6), sgd), policy=parse_policy("deadline:any"))
    peers = [offer(name, memory_for_peers(work, 2), flops=1e6) for name in "ab"]
    fast = {(a.peer, b.peer): 1e9 for a in peers for b in peers if a is not b}
    unmeasured = make_plan(JOB, work, peers)
    measured = make_plan(JOB, work, peers, network=NetworkModel(rates=fast))
    for plan, sentence in ((unmeasured, "no rate between these"), (measured, "communication hides")):
        assert len(plan.stages) == 2
        assert {str(stage.codec) for stage in plan.stages} == {"fp32"}
        assert sum(sentence in line for line in plan.explanation) == 1


def test_a_deadline_on_slow_links_is_at_its_floor_and_says_what_does_not_hide(sketch, sgd: Optimizer):
    work = replace(workload(layers(sketch, 6), sgd), policy=parse_policy("deadline"))
    peers = [offer(name, memory_for_peers(work, 2)) for name in "ab"]
    slow = {(a.peer, b.peer): 1e3 for a in peers for b in peers if a is not b}
    plan = make_plan(JOB, work, peers, network=NetworkModel(rates=slow))
    assert plan.stages[0].codec == admitted(ladder(), "faithful")[-1].codec != CodecSpec()
    assert any("do not hide" in line and "would bring that to" in line for line in plan.explanation)


def test_more_peers_than_a_plan_considers_are_cut_to_those_with_most_memory(sketch, sgd: Optimizer):
    work = workload(layers(sketch, 6), sgd)
    crowd = [offer(f"{chr(97 + i % 26)}{chr(97 + i // 26)}", 2 * 10**5 + i) for i in range(MAX_PEERS + 40)]
    plan = make_plan(JOB, work, crowd)
    lowest = sorted(crowd, key=lambda peer: peer.memory)[:40]
    assert not {peer.peer for peer in lowest} & {stage.holder for stage in plan.stages}


@pytest.mark.parametrize("peers", [3, 4])
def test_a_stage_that_makes_nothing_faster_is_not_given_to_anybody(sketch, sgd: Optimizer, peers: int):
    """Operators on inputs alone cost nothing to part from the rest, and two layers keep two peers busy."""
    tokens = sketch.leaf("input", 8, 64)
    ready = sketch.op("mul.Tensor", [tokens, "2"], 8, 64, trained=False)
    again = sketch.op("mul.Tensor", [tokens, "3"], 8, 64, trained=False)
    h = sketch.op("linear.default", [tokens, sketch.leaf("parameter", 64, 64)], 8, 64)
    h = sketch.op("linear.default", [h, sketch.leaf("parameter", 64, 64)], 8, 64)
    sketch.op("sum.default", [h])
    assert ready != again
    offers = [offer(name, 10**7) for name in "abcd"[:peers]]
    plan = make_plan(JOB, workload(sketch.graph(), sgd), offers)
    assert len(plan.stages) == 2
