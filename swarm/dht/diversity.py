"""Choosing nodes that are not all one party's: at most two of k by one address prefix, and by one invite.

Ids cost nothing, so whoever makes a thousand around a key would be all that is close to it. Places go to the
closest two of each prefix (/24, /56) first, and of these to the closest two of each invite; what is left goes
to the others, by distance. So nobody is turned away where there is no one else: a swarm on one machine, in
one laboratory, or by one invite has all of its nodes in use
(docs/decisions/0012-places-for-those-who-differ.md).
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

MAX_ALIKE: Final = 2
"""Places of k that go to one prefix, and to one invite, while others want them."""

Item = TypeVar("Item")


def diverse(
    items: Sequence[Item], k: int, *, prefix: Callable[[Item], str], invite: Callable[[Item], str | None]
) -> list[Item]:
    """``k`` of ``items``, which come best first and stay in that order.

    An ``invite`` of None is not known yet, and counts as one that nobody else has.
    """
    if len(items) <= k:
        return list(items)
    places: list[list[int]] = [[], [], []]
    """Indices: within both shares, within that of its prefix alone, within none."""
    prefixes: Counter[str] = Counter()
    invites: Counter[str] = Counter()
    for index, item in enumerate(items):
        if len(places[0]) == k:
            break
        where, by = prefix(item), invite(item)
        prefixes[where] += 1
        if prefixes[where] > MAX_ALIKE:
            places[2].append(index)
            continue
        if by is not None:
            invites[by] += 1
        places[by is not None and invites[by] > MAX_ALIKE].append(index)
    return [items[index] for index in sorted([index for place in places for index in place][:k])]
