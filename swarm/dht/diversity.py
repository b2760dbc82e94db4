"""Choosing nodes that are not all one party's: at most two of k by one address prefix, and by one invite.

Ids cost nothing, so whoever makes a thousand around a key would be all that is close to it. Places go to the
closest two of each prefix (/24, /56) first, and of these to the closest two of each invite; what is left goes
to the others, by distance. So nobody is turned away where there is no one else: a swarm on one machine, in
one laboratory, or by one invite has all of its nodes in use
(docs/decisions/0012-places-for-those-who-differ.md).
"""

from collections.abc import Sequence
from typing import Final, Protocol, TypeVar

MAX_ALIKE: Final = 2
"""Places of k that go to one prefix, and to one invite, while others want them."""


class Placed(Protocol):
    """What asks for a place."""

    @property
    def prefix(self) -> str:
        """Of its address."""
        ...

    @property
    def invite(self) -> str | None:
        """By which it is a member; None is not known yet, and counts as one that nobody else has."""
        ...


Item = TypeVar("Item", bound=Placed)


def diverse(items: Sequence[Item], k: int) -> list[Item]:
    """``k`` of ``items``, which come best first and stay in that order."""
    if len(items) <= k:
        return list(items)
    first: list[int] = []
    second: list[int] = []
    rest: list[int] = []
    """Indices: within both shares, within that of its prefix alone, within none."""
    prefixes: dict[str, int] = {}
    invites: dict[str, int] = {}
    for index, item in enumerate(items):
        prefix = item.prefix
        alike = prefixes.get(prefix, 0)
        if alike == MAX_ALIKE:
            rest.append(index)
            continue
        prefixes[prefix] = alike + 1
        invite = item.invite
        if invite is not None:
            invites[invite] = invites.get(invite, 0) + 1
            if invites[invite] > MAX_ALIKE:
                second.append(index)
                continue
        first.append(index)
        if len(first) == k:
            break
    return [items[index] for index in sorted([*first, *second, *rest][:k])]
