"""Whose DHT key counts."""

from dataclasses import replace

import pytest

from swarm.errors import RemoteProtocolError
from swarm.identity.authority import Authority
from swarm.identity.chain import Member
from swarm.identity.keys import PrivateKey
from swarm.identity.membership import Identity
from swarm.identity.rights import CONTRIBUTE_ONLY, Right
from swarm.protocol.epochs import MOST_AHEAD, first_epoch, newer_epoch
from swarm.protocol.welcome import Epoch
from swarm.wire.messages.hello import Accept

NOW = 1_800_000_000.0
AUTHORITY = Authority.create("lab", public=False, now=NOW)
KEY = bytes(range(32))


def member(*rights: Right) -> Member:
    invite = AUTHORITY.issue(label="x", rights=CONTRIBUTE_ONLY | set(rights), now=NOW)
    return Identity.join(invite, key=PrivateKey.generate(), now=NOW).member


DOOR, STRANGER = member(Right.ADMIT), member(Right.TRAIN, Right.ORGANISE)
KNOWN = first_epoch(bytes(32))


def accept(number: int, key: bytes = KEY) -> Accept:
    return Accept(version=1, observed="", admission=b"", epoch=number, epoch_key=key)


def test_every_member_makes_the_same_first_key_and_another_swarm_another() -> None:
    assert first_epoch(bytes(32)) == KNOWN
    assert (KNOWN.number, len(KNOWN.key)) == (0, 32)
    assert first_epoch(KEY).key != KNOWN.key


def test_a_newer_key_counts_from_a_known_door_with_the_right_to_admit() -> None:
    assert newer_epoch(KNOWN, accept(1), DOOR, door=True) == Epoch(number=1, key=KEY)
    assert newer_epoch(replace(KNOWN, number=5), accept(6), DOOR, door=True) == Epoch(number=6, key=KEY)


@pytest.mark.parametrize(
    ("known", "brought", "giver", "door"),
    [
        (KNOWN, accept(1), STRANGER, True),
        (KNOWN, accept(1), DOOR, False),
        (KNOWN, accept(2**53 - 1, b"x"), STRANGER, True),
        (KNOWN, accept(2**53 - 1, b"x"), DOOR, False),
        (KNOWN, accept(0), DOOR, True),
        (replace(KNOWN, number=5), accept(4), DOOR, True),
        (KNOWN, accept(1, b""), DOOR, True),
    ],
)
def test_no_other_key_is_taken(known: Epoch, brought: Accept, giver: Member, door: bool) -> None:
    assert newer_epoch(known, brought, giver, door=door) is None


@pytest.mark.parametrize("brought", [accept(1, b"x"), accept(MOST_AHEAD + 1), accept(2**53 - 1)])
def test_a_door_that_gives_no_key_or_uses_up_the_numbers_breaks_the_protocol(brought: Accept) -> None:
    with pytest.raises(RemoteProtocolError, match="cannot be one"):
        newer_epoch(KNOWN, brought, DOOR, door=True)
