import random
from collections import Counter
from dataclasses import dataclass

from swarm.dht.diversity import MAX_ALIKE, diverse

Item = tuple[str, str | None]


@dataclass(frozen=True, slots=True)
class Node:
    prefix: str
    invite: str | None


def choose(items: list[Item], k: int) -> list[Item]:
    return [(node.prefix, node.invite) for node in diverse([Node(*item) for item in items], k)]


def test_where_all_are_alike_the_best_are_chosen() -> None:
    items: list[Item] = [("here", "mine")] * 50
    assert choose(items, 20) == items[:20]


def test_two_of_a_prefix_and_two_of_an_invite_while_there_are_others() -> None:
    hostile: list[Item] = [(f"prefix {number % 4}", "one invite") for number in range(1000)]
    honest: list[Item] = [(f"home {number}", f"invite {number // 2}") for number in range(100)]
    chosen = choose(hostile + honest, 20)
    assert chosen[:MAX_ALIKE] == hostile[:MAX_ALIKE]
    assert chosen[MAX_ALIKE:] == honest[:18]


def test_prefixes_count_where_everybody_has_one_invite() -> None:
    hostile: list[Item] = [(f"prefix {number % 4}", "public") for number in range(1000)]
    honest: list[Item] = [(f"home {number}", "public") for number in range(100)]
    chosen = choose(hostile + honest, 20)
    assert chosen == hostile[:8] + honest[:12]


def test_what_is_left_goes_to_the_best_of_the_others_in_their_order() -> None:
    items: list[Item] = [("a", "1"), ("a", "2"), ("a", "3"), ("b", "3"), ("a", "4"), ("c", None)]
    assert choose(items, 5) == [("a", "1"), ("a", "2"), ("a", "3"), ("b", "3"), ("c", None)]


def test_an_unknown_invite_counts_as_nobody_elses() -> None:
    items: list[Item] = [(f"home {number}", None) for number in range(30)]
    assert choose(items, 20) == items[:20]


def test_no_share_is_exceeded_while_another_place_could_be_given() -> None:
    source = random.Random(3)
    for _ in range(200):
        items = [(str(source.randrange(30)), str(source.randrange(30))) for _ in range(100)]
        chosen = choose(list(items), 20)
        assert len(chosen) == 20
        if len({prefix for prefix, _ in items}) >= 20:
            assert max(Counter(prefix for prefix, _ in chosen).values()) <= MAX_ALIKE
