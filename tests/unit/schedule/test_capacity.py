from collections.abc import Callable, Sequence

import msgspec
import pytest

from swarm.graph.dag import Graph
from swarm.ids import PeerId
from swarm.schedule.capacity import capacity_error, is_hopeless, memory_for_peers
from swarm.schedule.chain import Chain
from swarm.schedule.partition import partition
from swarm.schedule.table import stage_table
from swarm.schedule.workload import PeerOffer, Workload
from swarm.wire.records.manifest import Optimizer

RandomGraph = Callable[[int, int], Graph]


def workload(graph: Graph, optimizer: Optimizer, micro_batches: int = 4) -> Workload:
    evaluation = msgspec.structs.replace(graph, mode="evaluate")
    return Workload(graph=graph, evaluation=evaluation, optimizer=optimizer, micro_batches=micro_batches)


def offers(*memory: int) -> list[PeerOffer]:
    return [
        PeerOffer(peer=PeerId(f"{name}" * 32), memory=bytes_, flops=1e9)
        for name, bytes_ in zip("abcdefghijkl", memory, strict=False)
    ]


def sentence(work: Workload, offered: Sequence[PeerOffer]) -> str:
    return str(capacity_error(stage_table(work.graph, work.optimizer), work, offered))


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("peers", [1, 2, 3, 5])
def test_equal_peers_with_the_named_memory_can_hold_the_job_and_with_a_byte_less_they_cannot(
    random_graph: RandomGraph, adamw: Optimizer, seed: int, peers: int
):
    work = workload(random_graph(seed, 12), adamw)
    table = stage_table(work.graph, adamw)
    each = memory_for_peers(work, peers)

    def fits(memory: int) -> bool:
        chain = Chain(memory=(memory,) * peers, flops=(1e9,) * peers)
        return partition(table, chain, micro_batches=work.micro_batches) is not None

    assert fits(each)
    assert not fits(each - 1)


@pytest.mark.parametrize("seed", range(6))
def test_more_peers_need_no_more_each(random_graph: RandomGraph, adamw: Optimizer, seed: int):
    work = workload(random_graph(seed, 20), adamw)
    needs = [memory_for_peers(work, peers) for peers in range(1, 8)]
    assert needs == sorted(needs, reverse=True)
    assert needs[0] == max(needs)


@pytest.mark.parametrize("seed", range(12))
def test_what_is_hopeless_by_its_sums_fits_in_no_order(
    random_graph: RandomGraph, adamw: Optimizer, seed: int
):
    work = workload(random_graph(seed, 10), adamw)
    table = stage_table(work.graph, adamw)
    each = memory_for_peers(work, 3)
    hopeless = [
        percent for percent in range(5, 130, 5) if is_hopeless(table, offers(*[each * percent // 100] * 3))
    ]
    assert 5 in hopeless
    assert max(hopeless) < 100
    for percent in hopeless:
        chain = Chain(memory=(each * percent // 100,) * 3, flops=(1e9,) * 3)
        assert partition(table, chain, micro_batches=4) is None


def layers(sketch, count: int, width: int = 64) -> Graph:
    h = sketch.leaf("input", 8, width)
    for layer in range(count):
        weight = sketch.leaf("parameter", width, width)
        h = sketch.op("linear.default", [h, weight], 8, width, path=f"layers.{layer}")
    sketch.op("sum.default", [h], path="loss")
    return sketch.graph()


def test_without_offers_the_sentence_says_what_to_start(sketch, adamw: Optimizer):
    assert sentence(workload(layers(sketch, 4), adamw), []) == (
        "no peer offers memory to the job: start peers, or raise their --memory"
    )


def test_too_little_memory_together_is_told_with_both_numbers(sketch, adamw: Optimizer):
    # 20 weights of 16 KiB: value, gradient and two moments are 1280 KiB, and 320 KiB are the gradients of one
    # micro-batch, before they are added to the others; 2 KiB are what the first layer keeps.
    work = workload(layers(sketch, 20), adamw)
    assert sentence(work, offers(500_000, 500_000)) == (
        "the job needs 1.6 MiB, the 2 peers offer 976.6 KiB together: start more peers or raise --memory"
    )
    assert sentence(work, offers(500_000)) == (
        "the job needs 1.6 MiB, the 1 peer offers 488.3 KiB together: start more peers or raise --memory"
    )


def test_a_part_that_fits_nowhere_is_named_with_what_it_needs(sketch, adamw: Optimizer):
    work = workload(layers(sketch, 3, width=512), adamw)
    assert sentence(work, offers(10**6, 2 * 10**6, 10**6)) == (
        "the operator linear.default in layers.1 cannot be split and needs 6.0 MiB, but the largest of "
        "3 peers offers 1.9 MiB: raise --memory, or make the micro-batches smaller"
    )


def test_operators_that_stay_together_are_named_as_one_part(sketch, sgd: Optimizer):
    x, mean = sketch.leaf("input", 400), sketch.leaf("buffer", 400)
    a = sketch.op("mul.Tensor", [x, mean], 400, trained=False, path="norm")
    c = sketch.op("add.Tensor", [a, mean], 400, trained=False, path="norm")
    sketch.op("sum.default", [c], trained=False)
    sketch.update(mean, c)
    assert sentence(workload(sketch.graph(), sgd), offers(3000)).startswith(
        "the part of 2 operators that begins with mul.Tensor in norm cannot be split and needs 4.7 KiB, "
        "but the largest of 1 peer offers 2.9 KiB"
    )


@pytest.mark.parametrize("peers", [1, 2, 3])
def test_a_part_that_needs_less_together_with_its_neighbours_is_not_hopeless(
    sketch, adamw: Optimizer, peers: int
):
    x = sketch.leaf("input", 64, 4)
    wide = sketch.op("linear.default", [x, sketch.leaf("parameter", 64, 4)], 64, 64)
    narrow = sketch.op("linear.default", [wide, sketch.leaf("parameter", 1, 64)], 64, 1)
    sketch.op("sum.default", [narrow], path="loss")
    work = workload(sketch.graph(), adamw)
    table = stage_table(work.graph, adamw)
    first, both = table.index(0, 1), table.index(0, 2)
    assert (table.fixed + table.held)[first] > (table.fixed + table.held)[both]
    each = memory_for_peers(work, peers)
    assert not is_hopeless(table, offers(*[each] * peers))


def test_enough_together_that_still_does_not_fit_is_told_with_what_each_needs(sketch, adamw: Optimizer):
    work = workload(layers(sketch, 20), adamw)
    each = memory_for_peers(work, 3)
    message = sentence(work, offers(each - 5000, each + 900_000, each - 5000))
    assert message.startswith("the job does not fit: split as evenly as its operators allow it needs ")
    assert message.endswith("): start more peers or raise --memory")
    assert "on each of 3 peers, and they offer " in message
    assert "\n" not in message


def test_numbers_that_look_alike_are_told_exactly(sketch, adamw: Optimizer):
    work = workload(layers(sketch, 20), adamw)
    each = memory_for_peers(work, 3)
    message = sentence(work, offers(each - 1, each - 1, each - 1))
    assert f"needs {each:,} B on each of 3 peers" in message
    assert f"(aaaaaaaa {each - 1:,} B, " in message


def test_many_offers_are_not_all_listed(sketch, adamw: Optimizer):
    work = workload(layers(sketch, 20), adamw)
    message = sentence(work, offers(*[180_000] * 10))
    assert "and 4 more" in message
    assert len(message) < 500
