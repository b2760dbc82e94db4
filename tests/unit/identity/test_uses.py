from collections.abc import Callable
from pathlib import Path

import pytest

from swarm.errors import FailureError, RemoteRefusalError
from swarm.identity.authority import Authority
from swarm.identity.chain import Member
from swarm.identity.keys import PrivateKey
from swarm.identity.membership import Identity
from swarm.identity.uses import UseLedger


@pytest.fixture
def holders(authority: Authority, now: float) -> Callable[[int, int], list[Member]]:
    """So many peers by one invite with so many uses."""

    def make(count: int, uses: int) -> list[Member]:
        invite = authority.issue(label="x", uses=uses, now=now)
        return [Identity.join(invite, key=PrivateKey.generate(), now=now).member for _ in range(count)]

    return make


@pytest.mark.parametrize(("uses", "words"), [(1, "for use once"), (3, "for use by 3 peers")])
def test_one_peer_too_many_is_refused(
    holders: Callable[[int, int], list[Member]], uses: int, words: str
) -> None:
    ledger = UseLedger()
    *welcome, late = holders(uses + 1, uses)
    assert all(ledger.use(member) for member in welcome)
    with pytest.raises(RemoteRefusalError, match=words) as caught:
        ledger.use(late)
    assert caught.value.code == "invite-used-up"
    assert ledger.peers(late.invite) == tuple(member.peer for member in welcome)


def test_coming_again_does_not_count(holders: Callable[[int, int], list[Member]]) -> None:
    ledger = UseLedger()
    (member,) = holders(1, 1)
    assert ledger.use(member)
    assert not ledger.use(member)
    assert ledger.peers(member.invite) == (member.peer,)


def test_invites_are_counted_apart(holders: Callable[[int, int], list[Member]]) -> None:
    ledger = UseLedger()
    assert all(ledger.use(holders(1, 1)[0]) for _ in range(5))


def test_uncounted_invite_leaves_no_trace(holders: Callable[[int, int], list[Member]]) -> None:
    ledger = UseLedger()
    members = holders(10, 0)
    assert not any(ledger.use(member) or ledger.learn(member) for member in members)
    assert ledger.encode() == UseLedger().encode()


def test_peers_that_others_admitted_take_up_uses(holders: Callable[[int, int], list[Member]]) -> None:
    ledger = UseLedger()
    one, two, three = holders(3, 1)
    assert ledger.learn(one)
    assert not ledger.learn(one)
    assert ledger.learn(two)
    with pytest.raises(RemoteRefusalError):
        ledger.use(three)
    assert not ledger.use(two)


def test_saved_ledger_counts_on(holders: Callable[[int, int], list[Member]], tmp_path: Path) -> None:
    path = tmp_path / "uses.json"
    ledger = UseLedger.load(path)
    one, two, three = holders(3, 2)
    ledger.use(one)
    ledger.save(path)
    again = UseLedger.load(path)
    assert again.peers(one.invite) == (one.peer,)
    assert not again.use(one)
    assert again.use(two)
    with pytest.raises(RemoteRefusalError):
        again.use(three)


@pytest.mark.parametrize(
    "damage", [b"", b"{", b"[]", b'{"format": 2, "invites": {}}', b"\xff", b"[" * 100_000]
)
def test_damaged_ledger_is_named(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "uses.json"
    path.write_bytes(damage)
    with pytest.raises(FailureError, match=r"uses\.json is damaged"):
        UseLedger.load(path)
