from swarm.ids import PeerId
from swarm.schedule.orders import all_orders, likely_orders
from swarm.schedule.workload import PeerOffer


def offer(name: str, memory: int, flops: float = 1.0) -> PeerOffer:
    return PeerOffer(peer=PeerId(name * 32), memory=memory, flops=flops)


def names(orders: object) -> list[str]:
    return ["".join(offer.peer[0] for offer in order) for order in orders]


def test_memory_comes_first_then_speed():
    offers = [offer("a", 5, 1.0), offer("b", 9, 2.0), offer("c", 7, 3.0)]
    assert names(likely_orders(offers)) == ["bca", "acb", "cba", "abc"]


def test_peers_alike_make_one_order():
    offers = [offer("b", 5), offer("a", 5)]
    assert names(likely_orders(offers)) == ["ba"]
    assert len(names(all_orders([*offers, offer("c", 6)]))) == 3


def test_every_order_of_few_peers_and_none_of_many():
    offers = [offer(name, index) for index, name in enumerate("abcd")]
    assert len(set(names(all_orders(offers)))) == 24
    assert names(all_orders([*offers, offer("e", 9)])) == []
