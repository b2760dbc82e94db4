"""Which word on this node's own address is published: others will call it."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from swarm.identity.rights import ALL_RIGHTS, CONTRIBUTE_ONLY, Right
from swarm.services.arrival import _observed


def link(observed: str, rights: frozenset[Right] = ALL_RIGHTS) -> Any:
    member = SimpleNamespace(may=lambda right: right in rights)
    return cast("Any", SimpleNamespace(accept=SimpleNamespace(observed=observed), member=member))


@pytest.mark.parametrize("address", ["198.51.100.7:40000", "[2001:db8::7]:40000"])
def test_a_number_is_believed_from_who_may_let_people_in(address: str) -> None:
    assert _observed(link(address)) == address
    assert _observed(link(address, CONTRIBUTE_ONLY)) == ""


@pytest.mark.parametrize(
    "address",
    ["", "é.example:7423", "victim.example:80", "x" * 250 + ":1", "198.51.100.7", "198.51.100.999:1", ":1"],
)
def test_nothing_but_a_number_is_believed(address: str) -> None:
    assert _observed(link(address)) == ""
