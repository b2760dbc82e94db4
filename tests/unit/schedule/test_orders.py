import random
from collections.abc import Callable, Sequence
from itertools import permutations

import pytest

from swarm.graph.dag import Graph
from swarm.ids import PeerId
from swarm.schedule import orders as module
from swarm.schedule.chain import Chain
from swarm.schedule.orders import fitting_order, likely_orders
from swarm.schedule.partition import partition
from swarm.schedule.table import StageTable, stage_table
from swarm.schedule.workload import PeerOffer
from swarm.wire.records.manifest import Optimizer

RandomGraph = Callable[[int, int], Graph]


def offer(name: str, memory: int, flops: float = 1.0) -> PeerOffer:
    return PeerOffer(peer=PeerId(name * 32), memory=memory, flops=flops)


def names(orders: object) -> list[str]:
    return ["".join(offer.peer[0] for offer in order) for order in orders]


def test_memory_comes_first_then_speed():
    offers = [offer("a", 5, 1.0), offer("b", 9, 2.0), offer("c", 7, 3.0)]
    assert names(likely_orders(offers)) == ["bca", "acb", "cba", "abc"]


def test_peers_alike_make_one_order():
    assert names(likely_orders([offer("b", 5), offer("a", 5)])) == ["ba"]


def fits(table: StageTable, order: Sequence[PeerOffer], micro_batches: int) -> bool:
    chain = Chain(memory=tuple(o.memory for o in order), flops=(1.0,) * len(order))
    return partition(table, chain, micro_batches=micro_batches) is not None


@pytest.mark.parametrize("seed", range(60))
def test_an_order_that_fits_is_found_wherever_there_is_one(
    random_graph: RandomGraph, adamw: Optimizer, seed: int
):
    rng = random.Random(seed)
    table = stage_table(random_graph(seed, 10), adamw)
    number = table.index(0, table.places - 1)
    alone = float(table.fixed[number] + table.held[number])
    kinds = [int(alone * rng.uniform(0.1, 0.7)) for _ in range(3)]
    offers = [offer(name, rng.choice(kinds)) for name in "abcd"]
    found = fitting_order(table, offers, micro_batches=3)
    possible = any(fits(table, order, 3) for order in permutations(offers))
    assert (found is not None) == possible
    if found is not None:
        assert sorted(found, key=lambda o: o.peer) == offers
        assert fits(table, found, 3)


def test_a_search_that_is_cut_down_still_finds_a_plain_order(
    random_graph: RandomGraph, adamw: Optimizer, monkeypatch: pytest.MonkeyPatch
):
    table = stage_table(random_graph(2, 60), adamw)
    monkeypatch.setattr(module, "MOST_WORK", 2000)
    roomy = [offer(name, 10**7 + index) for index, name in enumerate("abcd")]
    found = fitting_order(table, roomy, micro_batches=3)
    assert found is not None
    assert fits(table, found, 3)
    monkeypatch.setattr(module, "MOST_STATES", 15)
    assert fitting_order(table, roomy, micro_batches=3) is None
