"""The dynamic program against trying everything."""

import math
import random
from collections.abc import Callable
from itertools import combinations, pairwise

import numpy as np
import pytest

from swarm.graph.dag import Graph
from swarm.schedule import partition as module
from swarm.schedule.chain import Chain
from swarm.schedule.partition import SLACK, Partition, partition
from swarm.schedule.table import StageTable, stage_table
from swarm.wire.records.manifest import Optimizer

RandomGraph = Callable[[int, int], Graph]


def everything(table: StageTable, chain: Chain, micro_batches: int) -> list[tuple[float, float, int]]:
    """(interval, traffic, stages) of every partition that fits: all places, all choices of peers."""
    found = []
    last = table.places - 1
    for stages in range(1, min(chain.peers, last) + 1):
        for inner in combinations(range(1, last), stages - 1):
            for peers in combinations(range(chain.peers), stages):
                priced = price(table, chain, micro_batches, list(pairwise((0, *inner, last))), peers)
                if priced is not None:
                    found.append((*priced, stages))
    return found


def price(
    table: StageTable,
    chain: Chain,
    micro_batches: int,
    stages: list[tuple[int, int]],
    peers: tuple[int, ...],
) -> tuple[float, float] | None:
    slowest = traffic = 0.0
    for k, ((start, end), peer) in enumerate(zip(stages, peers, strict=True)):
        number = table.index(start, end)
        depth = min(len(stages) - k, micro_batches)
        if table.fixed[number] + depth * table.held[number] > chain.memory[peer]:
            return None
        slowest = max(slowest, (table.flops[end] - table.flops[start]) / chain.flops[peer])
    for k, (before, after) in enumerate(pairwise(peers)):
        place = stages[k][1]
        forward, backward = table.forward_bytes[place], table.backward_bytes[place]
        if chain.seconds_per_byte is None:
            traffic += forward + backward
        else:
            there = forward * chain.seconds_per_byte[before, after]
            back = backward * chain.seconds_per_byte[after, before]
            slowest = max(slowest, there, back)
            traffic += there + back
    return slowest, traffic


def random_chain(rng: random.Random, table: StageTable, *, rates: bool) -> Chain:
    peers = rng.randint(1, 4)
    number = table.index(0, table.places - 1)
    alone = float(table.fixed[number] + table.held[number])
    tightness = rng.choice([0.3, 0.6, 2.0])
    seconds = np.array([[rng.choice([1e-9, 1e-6, 1e-4]) for _ in range(peers)] for _ in range(peers)])
    return Chain(
        memory=tuple(int(alone * tightness * rng.uniform(0.3, 1.5)) for _ in range(peers)),
        flops=tuple(rng.choice([1e3, 2e3, 1e4]) for _ in range(peers)),
        seconds_per_byte=seconds if rates else None,
    )


def assert_sound(found: Partition, table: StageTable, chain: Chain, micro_batches: int) -> None:
    """The partition is what it says it is."""
    place = {int(position): index for index, position in enumerate(table.positions)}
    stages = [(place[segment.first], place[segment.last]) for segment in found.segments]
    assert [start for start, _ in stages] == [0, *(end for _, end in stages[:-1])]
    assert stages[-1][1] == table.places - 1
    peers = tuple(segment.peer for segment in found.segments)
    assert list(peers) == sorted(set(peers))
    priced = price(table, chain, micro_batches, stages, peers)
    assert priced is not None
    assert found.interval == pytest.approx(priced[0])
    assert found.traffic == pytest.approx(priced[1])
    for k, segment in enumerate(found.segments):
        number = table.index(*stages[k])
        assert segment.depth == min(len(stages) - k, micro_batches)
        assert segment.memory == math.ceil(table.fixed[number] + segment.depth * table.held[number])
        assert segment.memory <= chain.memory[segment.peer]
        assert segment.seconds == pytest.approx(table.stage_flops[number] / chain.flops[segment.peer])


@pytest.mark.parametrize("rates", [False, True])
@pytest.mark.parametrize("seed", range(40))
def test_no_partition_is_faster_and_none_as_fast_has_less_traffic(
    random_graph: RandomGraph, adamw: Optimizer, seed: int, rates: bool
):
    rng = random.Random(seed)
    table = stage_table(random_graph(seed, rng.randint(2, 9)), adamw)
    chain = random_chain(rng, table, rates=rates)
    micro_batches = rng.randint(1, 4)
    every = everything(table, chain, micro_batches)
    found = partition(table, chain, micro_batches=micro_batches)
    if not every:
        assert found is None
        return
    assert found is not None
    assert_sound(found, table, chain, micro_batches)
    least = min(interval for interval, _, _ in every)
    bound = least * (1 + SLACK)
    assert found.interval <= bound * (1 + 1e-9)
    cheapest = min(traffic for interval, traffic, _ in every if interval <= bound * (1 + 1e-9))
    positive = (table.forward_bytes + table.backward_bytes)[table.forward_bytes > 0]
    tolerance = 0.01 * len(found.segments) * float(positive.min(initial=math.inf))
    if rates:
        assert chain.seconds_per_byte is not None
        tolerance *= float(chain.seconds_per_byte.max())
    assert found.traffic <= cheapest + tolerance


def test_more_peers_are_used_when_that_is_faster_and_left_out_when_it_is_not(
    random_graph: RandomGraph, adamw: Optimizer
):
    table = stage_table(random_graph(5, 24), adamw)
    fast = Chain(memory=(10**9,) * 4, flops=(1e6,) * 4)
    found = partition(table, fast, micro_batches=4)
    assert found is not None
    assert len(found.segments) == 4
    uneven = Chain(memory=(10**9,) * 4, flops=(1e6, 1.0, 1e6, 1.0))
    found = partition(table, uneven, micro_batches=4)
    assert found is not None
    assert [segment.peer for segment in found.segments] == [0, 2]


def test_a_peer_without_room_is_left_out(random_graph: RandomGraph, adamw: Optimizer):
    table = stage_table(random_graph(6, 12), adamw)
    found = partition(table, Chain(memory=(10**9, 10, 10**9), flops=(1e6,) * 3), micro_batches=4)
    assert found is not None
    assert [segment.peer for segment in found.segments] == [0, 2]


def chain_of_products(sketch, layers: int) -> Graph:
    h = sketch.leaf("input", 8, 16)
    for layer in range(layers):
        h = sketch.op("linear.default", [h, sketch.leaf("parameter", 16, 16)], 8, 16, path=f"layers.{layer}")
    sketch.op("sum.default", [h])
    return sketch.graph()


def test_equal_layers_on_equal_peers_are_split_evenly(sketch, sgd: Optimizer):
    table = stage_table(chain_of_products(sketch, 12), sgd)
    found = partition(table, Chain(memory=(10**9,) * 4, flops=(1e6,) * 4), micro_batches=8)
    assert found is not None
    assert [segment.last - segment.first for segment in found.segments] in ([3, 3, 3, 4], [3, 3, 4, 3])


def test_a_cut_through_less_is_worth_a_little_time(sketch, sgd: Optimizer):
    """Twenty layers alike, of which the tenth makes a wide tensor, the eleventh a narrow one."""
    h = sketch.leaf("input", 8, 64, trained=True)
    for layer in range(20):
        width, before = {9: 1024, 10: 4}.get(layer, 64), {10: 1024, 11: 4}.get(layer, 64)
        h = sketch.op("linear.default", [h, sketch.leaf("parameter", width, before)], 8, width)
        h = sketch.op("mul.Tensor", [h, h], 8, width) if width == 64 else h
    sketch.op("sum.default", [h])
    table = stage_table(sketch.graph(), sgd)
    found = partition(table, Chain(memory=(10**9,) * 2, flops=(1e6,) * 2), micro_batches=8)
    assert found is not None
    assert found.traffic == 2 * 8 * 4 * 4


def test_thinning_where_the_work_is_too_much_still_gives_a_sound_partition_near_the_best(
    random_graph: RandomGraph, adamw: Optimizer, monkeypatch: pytest.MonkeyPatch
):
    table = stage_table(random_graph(8, 80), adamw)
    chain = Chain(memory=(10**9,) * 6, flops=(1e6, 2e6, 1e6, 3e6, 1e6, 1e6))
    best = partition(table, chain, micro_batches=4)
    monkeypatch.setattr(module, "MOST_WORK", 2000)
    monkeypatch.setattr(module, "THIN_PLACES", 24)
    quick = partition(table, chain, micro_batches=4)
    assert best is not None
    assert quick is not None
    assert_sound(quick, table, chain, 4)
    assert quick.interval <= 1.5 * best.interval


def test_what_fits_only_in_odd_places_is_found_though_the_first_look_misses_it(
    random_graph: RandomGraph, adamw: Optimizer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(module, "THIN_PLACES", 3)
    table = stage_table(random_graph(4, 9), adamw)
    every = [
        (memory, found)
        for memory in range(500, 12_000, 250)
        if (found := partition(table, Chain(memory=(memory,) * 3, flops=(1e6,) * 3), micro_batches=2))
    ]
    smallest = min(memory for memory, _ in every)
    chain = Chain(memory=(smallest,) * 3, flops=(1e6,) * 3)
    assert everything(table, chain, 2)
    below = Chain(memory=(smallest - 250,) * 3, flops=(1e6,) * 3)
    assert not everything(table, below, 2)


def test_a_graph_without_any_operation_is_placed(sketch, sgd: Optimizer):
    x = sketch.leaf("input", 4)
    sketch.op("view.default", [sketch.op("view.default", [x], 4, trained=False)], 4, trained=False)
    table = stage_table(sketch.graph(), sgd)
    assert partition(table, Chain(memory=(10**6,), flops=(1.0,)), micro_batches=1) is not None
